"""What the tools of all frameworks share: the words for the model, the run, and the text of its result."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Union

from .._async.client import AsyncClient
from .._async.session import AsyncSession
from .._keywords import known_keywords
from .._sync.client import Client
from .._sync.session import Session
from ..errors import InvalidError
from ..models import Execution
from ..options import unknown

SyncTarget = Union[Client, Session]
AsyncTarget = Union[AsyncClient, AsyncSession]

NAME = "run_python"
CODE = "The Python program."
REQUIREMENTS = 'Packages from the index that the code imports, like ["numpy", "pandas==2.2.3"].'
_COMMON = "Run Python code in a sandbox and return what it prints, the value of its last expression, and its plots. "
_STATELESS = "Each call is a new program with an empty folder: it sees no names or files of earlier calls."
_STATEFUL = "Names, imports and files stay between calls."
#: Begins a program that displays what a cell of a Session displays. It is a comment.
_DISPLAYS = "# python-executor: display\n"

#: The images that models read, the best first.
_IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
#: The maximum size of the images of a result, in bytes. Further ones are named in its text.
MAX_IMAGES = 5_000_000
#: The maximum length of a stream in a result for a model. The middle of a longer one is left out.
MAX_CHARACTERS = 20_000


def description(target: Union[SyncTarget, AsyncTarget]) -> str:
    """Return the description of the tool for the model."""
    return _COMMON + (_STATEFUL if isinstance(target, (Session, AsyncSession)) else _STATELESS)


def parameters() -> Dict[str, Any]:
    """Return the JSON schema of the tool's arguments."""
    return {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": CODE},
            "requirements": {"type": "array", "items": {"type": "string"}, "description": REQUIREMENTS},
        },
        "required": ["code"],
        "additionalProperties": False,
    }


@dataclass
class Image:
    """An image for a model."""

    mime: str
    data: bytes

    @property
    def base64(self) -> str:
        """The data as text."""
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """The image as a URL."""
        return f"data:{self.mime};base64,{self.base64}"


@dataclass
class Shown:
    """A result for a model."""

    text: str
    images: List[Image] = field(default_factory=lambda: [])


class CodeTool:
    """Runs code of a model. The options are those of `run`; requirements among them are there in every call."""

    def __init__(self, target: Union[SyncTarget, AsyncTarget], options: Mapping[str, Any]) -> None:
        """Make a tool."""
        known = [name for name in known_keywords(type(target).run) if name != "code"]
        for name in options:
            if name not in known:
                raise TypeError(unknown(name, known))
        if isinstance(target, (Session, AsyncSession)) and "requirements" in options:
            raise ValueError("requirements: must be those of the session, which is open already")
        self._target = target
        self._options = dict(options)
        self._requirements: List[str] = _lines(self._options.pop("requirements", ()))

    @property
    def asynchronous(self) -> bool:
        """Whether the target is asynchronous."""
        return isinstance(self._target, (AsyncClient, AsyncSession))

    def run(self, code: str, requirements: Optional[Sequence[str]] = None) -> Shown:
        """Run code, and return the result for the model. Its mistakes are text, too."""
        target = self._target
        try:
            if isinstance(target, Session):
                if requirements:
                    target.install(*requirements)
                return result(target.run(code, **self._options))
            assert isinstance(target, Client)
            return result(target.run(self._program(code), **self._with(requirements)))
        except InvalidError as e:
            return Shown(f"The call was refused: {e}")

    async def run_async(self, code: str, requirements: Optional[Sequence[str]] = None) -> Shown:
        """Run code, and return the result for the model. Its mistakes are text, too."""
        target = self._target
        try:
            if isinstance(target, AsyncSession):
                if requirements:
                    await target.install(*requirements)
                return result(await target.run(code, **self._options))
            assert isinstance(target, AsyncClient)
            return result(await target.run(self._program(code), **self._with(requirements)))
        except InvalidError as e:
            return Shown(f"The call was refused: {e}")

    def _program(self, code: str) -> str:
        """Return code as a program that displays its value and its plots."""
        return code if self._options.get("language", "python") != "python" else _DISPLAYS + code

    def _with(self, requirements: Optional[Sequence[str]]) -> Dict[str, Any]:
        wanted = [*self._requirements, *(requirements or ())]
        return {**self._options, "requirements": wanted} if wanted else self._options


def result(execution: Execution) -> Shown:
    """Return an Execution for a model: its text, and the images that it displayed."""
    parts = [_shorten(execution.stdout)]
    images: List[Image] = []
    size = 0
    for display in execution.displays:
        image = next((Image(mime, form) for mime in _IMAGES if isinstance(form := display.data.get(mime), bytes)), None)
        if image is None:
            parts.append(_shorten(display.text) if display.text is not None else f"[{', '.join(display.data)}]")
        elif size + len(image.data) > MAX_IMAGES:
            parts.append(f"[{image.mime}, left out: the images of a result have at most {MAX_IMAGES:,} bytes]")
        else:  # its text is "<Figure size 640x480 with 1 Axes>"
            parts.append(f"[{image.mime}]")
            images.append(image)
            size += len(image.data)
    if execution.displays_truncated:
        parts.append("Some displays are missing or cut: they are too large.")
    if execution.stderr:
        parts.append("stderr:\n" + _shorten(execution.stderr))
    if not execution.succeeded:
        parts.append(f"The program ended with status {execution.status}" + _why(execution) + ".")
    if execution.hint:
        parts.append(execution.hint)
    if execution.session_state == "restarted":
        parts.append("The interpreter was restarted: names and imports are gone, files are there.")
    text = "\n".join(p.rstrip("\n") for p in parts if p)
    return Shown(text or "The program printed nothing.", images)


def _why(execution: Execution) -> str:
    if execution.error is not None:
        return f": {execution.error.message}"
    if execution.signal:
        return f" by {execution.signal}"
    return f" and exit code {execution.exit_code}" if execution.exit_code is not None else ""


def _shorten(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters are left out]\n{text[-half:]}"


def _lines(requirements: Union[str, Sequence[str]]) -> List[str]:
    return requirements.splitlines() if isinstance(requirements, str) else list(requirements)
