"""The progress of an upload."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import Any, Callable, Generator, Optional, Union

#: True: a bar of tqdm or rich, if installed. A function gets the bytes that were sent and their total, None if it is not known.
Progress = Union[bool, Callable[[int, Optional[int]], object], None]
Report = Callable[[int, Optional[int]], object]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@contextmanager
def reporting(progress: Progress) -> Generator[Optional[Report], None, None]:
    """Return the function to report to, and end its bar."""
    if not isinstance(progress, bool):
        yield progress
        return
    tqdm = _module("tqdm.auto") if progress else None
    rich = _module("rich.progress") if progress and tqdm is None else None
    if tqdm is not None:
        with tqdm.tqdm(desc="upload", unit="B", unit_scale=True, unit_divisor=1024) as bar:

            def to_tqdm(done: int, total: Optional[int]) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield to_tqdm
    elif rich is not None:
        columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn()]
        with rich.Progress(*columns) as bars:
            task = bars.add_task("upload", total=None)

            def to_rich(done: int, total: Optional[int]) -> None:
                bars.update(task, completed=done, total=total)

            yield to_rich
    else:
        yield None
