"""The server's URL and the token, as they are given."""

from __future__ import annotations

import json
import os
import re
from typing import Optional
from urllib.parse import SplitResult, urlsplit

from ._input import invalid
from .errors import InvalidError

#: The address of a server with the default configuration.
EXAMPLE = "http://127.0.0.1:8080"
#: The path of the API, which the client adds to the server's URL.
API = "/api/v1"


def server_url(server: Optional[str]) -> str:
    """Return the base URL, by default that of PYEXEC_SERVER. An error names what would be right, and has no password."""
    if server is not None and not isinstance(server, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid("server", f"must be a URL as {EXAMPLE} (got {type(server).__name__})")
    given = server or os.environ.get("PYEXEC_SERVER")
    field = "server" if server else "PYEXEC_SERVER"
    if not given:
        raise invalid("server", f"must be given, or set in PYEXEC_SERVER ({EXAMPLE} is the address of python-executor serve)")
    trimmed = given.strip()
    scheme, absolute, rest = trimmed.partition("://")
    scheme = scheme.lower()
    if not absolute or scheme not in ("http", "https"):
        bare = trimmed.lstrip("/")
        guess = "http://" + ("127.0.0.1" if bare.startswith(":") else "") + bare
        host = _netloc(guess) if not absolute and "@" not in guess else ""
        if host == "localhost" or re.search(r"[.:]\w", host):
            raise _bad(field, given, "must begin with http:// or https://", guess)
        raise _bad(field, given, f"must begin with http:// or https://, as {EXAMPLE} does")
    hostless = f"must have a host, and a port that is a number, as {EXAMPLE} has"
    try:
        parts = urlsplit(f"{scheme}://{rest}")
    except ValueError:
        raise _bad(field, given, hostless) from None
    if not parts.hostname or re.search(r"\s", parts.netloc) or not re.search(r"(^|[^:]|\])(:\d*)?$", _address(parts)):
        raise _bad(field, given, hostless)
    try:
        valid = parts.port != 0
    except ValueError:
        valid = False
        if not parts.netloc.rpartition(":")[2].isdigit():
            raise _bad(field, given, hostless) from None
    if not valid:
        raise _bad(field, given, "must have a port between 1 and 65535")
    before, found, after = parts.path.partition(API)
    if found and after[:1] in ("", "/"):
        meant = parts._replace(netloc=_address(parts), path=before, query="", fragment="").geturl()
        raise _bad(field, given, f"must not have the path {API}, which the client adds", meant)
    return parts._replace(query="", fragment="").geturl().rstrip("/")


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _address(parts: SplitResult) -> str:
    """Return the host and the port, without the user."""
    return parts.netloc.rpartition("@")[2]


def without_user(url: str) -> str:
    """Return a URL without its user."""
    parts = urlsplit(url)
    return parts._replace(netloc=_address(parts)).geturl()


def _bad(field: str, given: str, what: str, meant: str = "") -> InvalidError:
    if meant:
        what += f": did you mean {meant}?"
    return invalid(field, f"{what} (got {json.dumps(given.rpartition('@')[2], ensure_ascii=False)})")


def check_token(token: object, field: str) -> None:
    """Raise an error if a token cannot be sent. The error has no part of the token."""
    if not isinstance(token, str):
        raise invalid(field, f"must be a str (got {type(token).__name__})")
    for number, character in enumerate(token, 1):
        if not " " < character < "\x7f":
            what = "white space or a control character" if character <= " " or character == "\x7f" else "a character that is not ASCII"
            raise invalid(field, f"must be visible ASCII characters (character {number} is {what})")
