"""The smallest project: `python-executor run examples/hello [-- NAME]`."""

import platform
import sys

name = sys.argv[1] if len(sys.argv) > 1 else "world"
print(f"Hello, {name}, from Python {platform.python_version()}")
