"""The printed form of a value: one short line. `raw` has all of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, List, Optional, Sequence

if TYPE_CHECKING:
    from .models import Backend, BatchSummary, CaseResult, DisplayData, Execution, Page, SessionInfo

#: The maximum length of a text in a printed form.
MAX_TEXT = 80


def _shortened(text: Optional[str]) -> str:
    if not text:
        return ""
    quoted = json.dumps(text[:MAX_TEXT], ensure_ascii=False)
    return quoted if len(text) <= MAX_TEXT else f"{quoted}… ({len(text)} characters)"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"[{' '.join(names[:5])}{more}]" if names else ""


def _named(name: str, value: str) -> str:
    return name + value if value else ""


def _form(kind: str, *parts: Optional[str]) -> str:
    return f"{kind}({', '.join(p for p in parts if p)})"


def execution(self: Execution) -> str:
    """Return the status, how the program ended, and the beginning of what it printed."""
    forms: List[str] = [mime for d in self.displays for mime in d.data]
    return _form(
        "Execution",
        self.execution_id,
        self.status,
        f"exit code {self.exit_code}" if self.exit_code else "",
        self.signal,
        _named("error=", _shortened(self.error.message if self.error else "")),
        _named("stdout=", _shortened(self.stdout)),
        _named("stderr=", _shortened(self.stderr)),
        _named("displays=", _listed(forms)),
        _named("artifacts=", _listed([a.path for a in self.artifacts])),
    )


def session(self: SessionInfo) -> str:
    """Return the id, the name and the state."""
    return _form("SessionInfo", self.session_id, self.name, self.language, self.status, self.reason)


def case(self: CaseResult) -> str:
    """Return the case, its verdict, and why it has not passed."""
    return _form("CaseResult", self.id or str(self.index), self.verdict, _shortened(self.detail))


def summary(self: BatchSummary) -> str:
    """Return the counts."""
    return _form("BatchSummary", f"{self.passed} of {self.cases} passed", f"{self.duration_seconds:.3g} s")


def page(self: Page) -> str:
    """Return the number of Executions."""
    return _form("Page", f"{len(self.executions)} executions", _named("next=", self.next or ""))


def display(self: DisplayData) -> str:
    """Return the forms: text is shown, other forms have their size."""
    forms = [f"{mime}={_shortened(form) or '…'}" if isinstance(form, str) else f"{mime} of {len(form)} bytes" for mime, form in self.data.items()]
    return _form("DisplayData", *forms)


def backend(self: Backend) -> str:
    """Return the name and the state."""
    return _form("Backend", self.name, self.type if self.type != self.name else "", "healthy" if self.healthy else f"not healthy: {self.message}")
