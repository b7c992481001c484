"""The vectors of the HTTP API that the server and the SDKs share."""

from __future__ import annotations

import base64
import json
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, List

import httpx
import pytest
from helpers import REPOSITORY

from python_executor import Execution, Finished, Output, SessionInfo, UnknownEvent
from python_executor._foreign import response_error
from python_executor.errors import CLASS_OF_CODE
from python_executor.events import KINDS, Display, decode_event
from python_executor.models import DisplayData, decode
from python_executor.options import KNOWN, RunOptions, metadata

VECTORS = REPOSITORY / "testdata" / "wire"


def cases(folder: str) -> List[Any]:
    """Return the files of a folder as parameters."""
    return [pytest.param(path, id=path.stem) for path in sorted((VECTORS / folder).glob("*.json"))]


def at(text: object) -> Any:
    """Return the time of a vector."""
    parsed = decode(Execution, {"created_at": text}).created_at
    assert isinstance(parsed, datetime)
    return parsed


def same(got: Any, wire: Any, where: str = "") -> None:
    """Compare a decoded value with all that the wire says."""
    if is_dataclass(got):
        known = {f.name for f in fields(got)}
        for name, value in wire.items():
            assert name in known, f"{where}.{name} is not decoded"
            if name == "displays":
                continue  # compared by the caller
            if value is not None:
                same(getattr(got, name), value, f"{where}.{name}")
    elif isinstance(got, datetime):
        assert got == at(wire), where
    elif isinstance(got, list):
        assert len(got) == len(wire), where
        for index, (one, other) in enumerate(zip(got, wire)):
            same(one, other, f"{where}[{index}]")
    else:
        assert got == wire, where


@pytest.mark.parametrize("path", cases("result"))
def test_a_result_has_every_value(path: Path) -> None:
    vector = json.loads(path.read_text("utf-8"))
    execution = decode(Execution, vector["wire"])
    same(execution, vector["wire"])
    assert execution.stdout_data == base64.b64decode(vector.get("stdout_base64") or "")
    assert execution.stderr_data == base64.b64decode(vector.get("stderr_base64") or "")
    for got, sent in zip(execution.displays, vector.get("displays") or []):
        forms = {mime: base64.b64decode(data) for mime, data in sent["data"].items()}
        assert {m: d.encode() if isinstance(d, str) else d for m, d in got.data.items()} == forms
        assert got.value == sent.get("value", False)
    assert len(execution.displays) == len(vector.get("displays") or [])


@pytest.mark.parametrize("path", cases("session"))
def test_a_session_has_every_value(path: Path) -> None:
    vector = json.loads(path.read_text("utf-8"))
    same(decode(SessionInfo, vector["wire"]), vector["wire"])


@pytest.mark.parametrize("path", cases("event"))
def test_an_event_has_every_value(path: Path) -> None:
    vector = json.loads(path.read_text("utf-8"))
    event = decode_event(int(vector["id"]), vector["name"], json.dumps(vector["data"]))
    data: Dict[str, Any] = vector["data"]
    assert (event.seq, event.kind, event.raw) == (int(vector["id"]), vector["name"], data)
    if isinstance(event, Output):
        assert event.data == base64.b64decode(vector["event"]["body"]["data"])
        assert (event.stream, event.offset, event.earlier) == (data["stream"], data["offset"], data.get("earlier", False))
    elif isinstance(event, Display):
        forms = {mime: base64.b64decode(form) for mime, form in vector["event"]["body"]["data"].items()}
        assert {m: d.encode() if isinstance(d, str) else d for m, d in event.display.data.items()} == forms
        assert (event.display.value, event.display.truncated) == (data["value"], data.get("truncated", False))
    elif isinstance(event, Finished):
        same(event.execution, data)
    elif not isinstance(event, UnknownEvent):
        same(event, data)


@pytest.mark.parametrize("path", cases("problem"))
def test_a_problem_becomes_the_error_of_its_code(path: Path) -> None:
    vector = json.loads(path.read_text("utf-8"))
    error = response_error(httpx.Response(vector["status"], json=vector["body"], headers={"Content-Type": "application/problem+json", **vector["headers"]}), "http://box.lan")
    expected, body = vector["error"], vector["body"]
    assert type(error) is CLASS_OF_CODE[body["code"]]
    assert (error.status, error.message, error.request_id) == (vector["status"], body["detail"], body["request_id"])
    assert error.execution_id == expected.get("execution_id", "")
    assert error.retry_after == expected.get("retry_after_seconds", 0)
    assert [(f.field, f.message) for f in error.fields] == [(f["field"], f["message"]) for f in expected.get("fields") or []]


@pytest.mark.parametrize("path", cases("metadata"))
def test_options_can_say_all_that_metadata_says(path: Path) -> None:
    wire: Dict[str, Any] = json.loads(path.read_text("utf-8"))["metadata"]
    options = dict(wire)
    given = {name: options.pop(name) for name in ("code", "stdin", "script") if name in options}
    config = options.pop("config", {})
    if "network_disabled" in config:
        options["network"] = not config.pop("network_disabled")
    if "requirements_txt" in options:
        options["requirements"] = options.pop("requirements_txt")
    assert set(options) | set(config) <= set(KNOWN[RunOptions])
    written = {**given, **metadata({**options, **config})}
    assert written == json.loads(path.read_text("utf-8"))["metadata"]


def test_every_field_of_the_api_is_an_option() -> None:
    document = json.loads((REPOSITORY / "frontends" / "http" / "openapi.json").read_text("utf-8"))
    sent = set(document["components"]["schemas"]["Metadata"]["properties"]) - {"config", "requirements_txt", "code", "stdin", "script"}
    assert sent <= set(RunOptions.__annotations__)


def test_every_code_of_the_api_has_a_class() -> None:
    document = json.loads((REPOSITORY / "frontends" / "http" / "openapi.json").read_text("utf-8"))
    assert set(document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]) == set(CLASS_OF_CODE)


def test_forms_of_one_value_are_one_display() -> None:
    forms = [{"mime": "text/plain", "data": "a", "display": 0, "value": True}, {"mime": "x", "base64": "AA==", "display": 0, "value": True}]
    assert decode(Execution, {"displays": forms}).displays == [DisplayData({"text/plain": "a", "x": b"\x00"}, True)]


def test_values_of_the_wrong_type_are_passed_on_or_refused() -> None:
    for wrong in (None, 1, "x", [], {}, [1], [None], True):
        for name in [f.name for f in fields(Execution) if f.name != "raw"]:
            decode(Execution, {name: wrong})
        assert decode_event(1, "new", json.dumps(wrong)).kind == "new"
        for name in ("data", "data_base64", "offset", "stream", "requirements"):
            for kind in KINDS:
                try:
                    decode_event(1, kind, json.dumps({name: wrong}))
                except (TypeError, ValueError):
                    continue
    assert decode_event(1, "new", "not JSON").raw == {"data": "not JSON"}
