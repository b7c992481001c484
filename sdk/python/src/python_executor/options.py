"""The options of `run`, `submit` and `open_session`, and how they are sent."""

from __future__ import annotations

import difflib
from collections.abc import Iterable as IterableType
from typing import Any, Dict, Iterable, List, Mapping, Sequence, TypedDict, Union, cast

from ._input import invalid, kind


class LimitOptions(TypedDict, total=False):
    """Limits. A limit that is not given is the server's default."""

    #: Wall time from the start of the program. Queueing and installing do not count. 0: the server's maximum.
    timeout_seconds: float
    #: CPU time of all processes of the program together, also of those that have ended. A program that has used more has timed out. Default:
    #: the server's, else no limit but timeout_seconds. The default of timeout_seconds is then at least 10 times as long.
    cpu_seconds: float
    #: True: a network. False: none but the program's own loopback. Default: off where the backend can enforce it.
    network: bool
    #: Memory of all processes of the program together, in MB of 2^20 bytes.
    memory_mb: int
    #: Size of the work folder, uploaded files included, in MB of 2^20 bytes.
    disk_mb: int
    #: Relative weight when the CPU is contended. 1024 is one share.
    cpu_shares: int
    #: Processes and threads that are alive at once.
    pids: int
    #: Bytes that are kept of each output stream. Bytes beyond it are counted, not kept.
    output_bytes: int
    #: Time between SIGTERM and SIGKILL when the program is stopped.
    kill_grace_seconds: float


class _CommonOptions(LimitOptions, total=False):
    #: python (default), javascript or shell.
    language: str
    #: Minor version of Python, "3.12". Default: the backend's.
    python_version: str
    #: Container image, "python:3.12-slim".
    docker_image: str
    #: A list of requirements, or a text in the form of a requirements.txt.
    requirements: Union[str, Sequence[str]]
    #: Shell commands that prepare the image.
    pre_commands: Sequence[str]
    #: Environment variables, added to the program's own.
    env: Mapping[str, str]
    #: Name of the backend. Default: the server's.
    backend: str


class RunOptions(_CommonOptions, total=False):
    """The options of a program."""

    #: An argv to run instead of code or an entrypoint. Its first element is looked up on PATH.
    command: Sequence[str]
    #: The file to run, relative to the root of the files.
    entrypoint: str
    #: Arguments, appended to those of the program.
    args: Sequence[str]
    #: Globs of files in the work folder to keep as artifacts. ** matches folders. The name of a folder stands for all below it.
    outputs: Sequence[str]
    #: Also keep every regular file that is new or changed since the program started.
    outputs_changed: bool
    #: Only in a Session: name the files that were made or changed, and copy none.
    files_changed: bool
    #: Whether the server looks for requirements. Default: in code and in a tar, which it keeps on disk until the tar is whole. False: never.
    #: The client itself looks into files and directory.
    detect: bool
    #: environment: an interpreter with the requirements (default). system: the python3 of the sandbox.
    interpreter: str
    #: The same owner, key and Spec return the first Execution. Default: a new key for each call.
    idempotency_key: str
    #: Session to run in. Default: a sandbox of its own.
    session_id: str
    #: Accept the Execution only when everything is on the server's disk. `submit` always does.
    durable: bool
    #: Interval of memory_samples. Default: no samples.
    sample_interval_seconds: float
    #: A cancel sends SIGINT, as Ctrl-C does, and not SIGTERM.
    interrupt_on_cancel: bool
    #: A folder of the server's host to run in. Needs the scope trusted.
    host_directory: str


class SessionOptions(_CommonOptions, total=False):
    """The options of a Session, for its whole life."""

    #: A name for people. It need not be unique.
    name: str
    #: The purpose of the Session.
    description: str
    #: The server closes the Session when it is not used for this time.
    idle_timeout_seconds: float
    #: The server closes the Session at this age.
    max_life_seconds: float


def _names(*classes: type) -> Sequence[str]:
    # __annotations__ of a TypedDict has the inherited ones, too.
    return [name for c in classes for name in c.__annotations__]


_LIMITS = _names(LimitOptions)
KNOWN: Dict[type, Sequence[str]] = {RunOptions: _names(RunOptions), SessionOptions: _names(SessionOptions)}


def requirements_text(requirements: Union[str, Iterable[str]]) -> str:
    """Return requirements in the form of a requirements.txt."""
    if isinstance(requirements, str):
        return requirements
    if isinstance(requirements, (bytes, Mapping)) or not isinstance(cast(object, requirements), IterableType):
        raise TypeError(f"requirements: must be a text or a list of texts (got {kind(cast(object, requirements))})")
    lines = list(requirements)
    if not all(isinstance(line, str) for line in cast("List[object]", lines)):
        raise TypeError("requirements: must be a text or a list of texts")
    return "".join(line + "\n" for line in lines)


def unknown(name: str, known: Sequence[str]) -> str:
    """Return the error of a name that is not known, with the one that was meant."""
    near = _MEANT.get(name)
    if near not in known:  # the whole names win over their first and last words
        words = {w: k for k in known for w in (k.rpartition("_")[2], k.partition("_")[0])}
        words.update({k: k for k in known})
        near = next((words[w] for w in difflib.get_close_matches(name, words, 1)), None)
    if near is None:
        return f"{name}: unknown option (must be one of {', '.join(known)})"
    more = "; the limit of a program is timeout_seconds of run" if near == "idle_timeout" else ""
    return f"{name}: unknown option (did you mean {near}?{more})"


#: Names of other libraries.
_MEANT = {"timeout": "timeout_seconds", "packages": "requirements", "dependencies": "requirements", "input": "stdin", "url": "server", "base_url": "server"}
_MEANT.update({"api_key": "token", "auth": "token", "retries": "retry", "max_retries": "retry", "callback": "on_case", "cwd": "directory", "image": "docker_image"})
_MEANT.update({"cpu": "cpu_seconds", "env_vars": "env", "environment": "env", "dir": "directory", "folder": "directory"})


def metadata(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Return options as the API's JSON. An option that is None counts as not given."""
    body: Dict[str, Any] = {}
    config: Dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name == "network":
            if not isinstance(value, bool):
                raise invalid("network", f"must be True or False (got {value!r})")
            config["network_disabled"] = not value
        elif name in _LIMITS:
            config[name] = value
        elif name == "requirements":
            body["requirements_txt"] = requirements_text(value)
        elif isinstance(value, str) or not isinstance(value, (Sequence, Mapping)):
            body[name] = value
        else:
            body[name] = dict(value) if isinstance(value, Mapping) else list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if config:
        body["config"] = config
    return body
