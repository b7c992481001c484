"""A project with a requirement and a data file.

    python-executor run examples/report
    python-executor run examples/report --output out      # also saves report.txt
"""

import csv
from collections import defaultdict
from pathlib import Path

from tabulate import tabulate

rain = defaultdict(list)
with (Path(__file__).parent / "data" / "measurements.csv").open(newline="") as f:
    for row in csv.DictReader(f):
        rain[row["station"]].append(float(row["rain_mm"]))

table = tabulate(
    [(station, len(mm), sum(mm), max(mm)) for station, mm in sorted(rain.items())],
    headers=["station", "days", "total mm", "highest mm"],
    floatfmt=".1f",
)
print(table)
Path("report.txt").write_text(table + "\n")
