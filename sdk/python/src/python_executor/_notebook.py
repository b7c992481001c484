"""The HTML of an Execution in a notebook.

The output comes from a program that need not be trusted. Text is escaped, images are data of an img element, which runs no
scripts, and HTML is shown in a frame without rights.
"""

from __future__ import annotations

import base64
import html
import re
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from .models import DisplayData, Execution

#: The maximum length of a text that is shown. The end of a longer text is shown.
MAX_TEXT = 100_000
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PRE = "white-space:pre-wrap;margin:0.3em 0"
_MUTED = "opacity:0.7;font-size:90%"


def execution_html(execution: Execution) -> str:
    """Return the HTML of an Execution: its output, what it displayed, and a line about an end without success."""
    parts = [_pre(execution.stdout), _pre(execution.stderr, "border-left:3px solid #c33;padding-left:0.5em")]
    parts += [_display(display) for display in execution.displays]
    if execution.displays_truncated:
        parts.append(_note("Some displays are missing here or are cut."))
    if execution.stdout_truncated or execution.stderr_truncated:
        parts.append(_note("The output is cut at output_bytes."))
    if not execution.succeeded:
        parts.append(_note(execution.summary()))
    if execution.artifacts:
        parts.append(_note("Files: " + ", ".join(a.path for a in execution.artifacts)))
    return "<div>" + "".join(parts) + "</div>"


def _pre(text: Optional[str], style: str = "") -> str:
    if not text:
        return ""
    shown = _TERMINAL_SEQUENCE.sub("", text[-MAX_TEXT:])
    cut = _note(f"The first {len(text) - MAX_TEXT:,} characters are not shown.") if len(text) > MAX_TEXT else ""
    return f'{cut}<pre style="{_PRE};{style}">{html.escape(shown)}</pre>'


def _note(text: str) -> str:
    return f'<div style="{_MUTED}">{html.escape(text)}</div>'


def _display(display: DisplayData) -> str:
    """Return the richest form: an image, else HTML, else text."""
    for mime in _IMAGES:
        if mime in display.data:
            return f'<img src="data:{mime};base64,{_base64(display.data[mime])}" alt="{html.escape(display.text or mime)}" style="max-width:100%">'
    if display.html is not None:
        # An empty sandbox attribute allows neither scripts nor the notebook's origin.
        return f'<iframe sandbox="" srcdoc="{html.escape(display.html)}" style="width:100%;height:20em;border:0"></iframe>'
    if display.text is not None:
        return _pre(display.text)
    return _note("Display of type " + ", ".join(display.data))


def _base64(form: Union[str, bytes]) -> str:
    return base64.b64encode(form.encode() if isinstance(form, str) else form).decode()
