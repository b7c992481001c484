"""What a model reads: the text of a result. This needs no framework."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from helpers import TOKEN, Server

import python_executor
from python_executor import AsyncClient, Client, DisplayData, Execution, Failure, InvalidError
from python_executor.adapters._code import MAX_CHARACTERS, MAX_IMAGES, CodeTool, description, result


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "The program printed nothing."),
        ({"stdout": "a\n"}, "a"),
        ({"stdout": "a\n", "stderr": "b\n"}, "a\nstderr:\nb"),
        ({"stdout": "a\n", "displays": [DisplayData({"text/plain": "7"}), DisplayData({"application/json": "1"})]}, "a\n7\n[application/json]"),
        ({"status": "failed", "exit_code": 3}, "The program ended with status failed and exit code 3."),
        ({"status": "killed", "signal": "SIGKILL"}, "The program ended with status killed by SIGKILL."),
        ({"status": "failed", "exit_code": 1, "hint": "name it"}, "The program ended with status failed and exit code 1.\nname it"),
        ({"status": "failed", "error": Failure(message="no package x")}, "The program ended with status failed: no package x."),
        (
            {"status": "timed_out", "session_state": "restarted"},
            "The program ended with status timed_out.\nThe interpreter was restarted: names and imports are gone, files are there.",
        ),
    ],
)
def test_the_text_of_a_result(fields: dict[str, Any], text: str) -> None:
    assert result(Execution(**{"status": "succeeded", **fields})).text == text


def test_images_are_there_beside_their_place_in_the_text() -> None:
    png, gif, large = DisplayData({"text/plain": "<Figure>", "image/png": b"png"}), DisplayData({"image/gif": b"gif"}), DisplayData({"image/png": bytes(MAX_IMAGES)})
    shown = result(Execution(status="succeeded", displays=[png, large, gif], displays_truncated=True))
    assert [(i.mime, i.data) for i in shown.images] == [("image/png", b"png"), ("image/gif", b"gif")]
    assert shown.images[0].url == "data:image/png;base64,cG5n"
    left_out = "[image/png, left out: the images of a result have at most 5,000,000 bytes]"
    assert shown.text.splitlines() == ["[image/png]", left_out, "[image/gif]", "Some displays are missing or cut: they are too large."]


def test_long_output_loses_its_middle() -> None:
    text = result(Execution(status="succeeded", stdout="a" * MAX_CHARACTERS + "b" * MAX_CHARACTERS)).text
    assert f"a\n[{MAX_CHARACTERS:,} characters are left out]\nb" in text
    assert len(text) < MAX_CHARACTERS + 100


def test_a_program_has_its_value_and_its_plots(client: Client, plot: str) -> None:
    shown = CodeTool(client, {}).run(plot)
    assert (shown.text, [i.data[:4] for i in shown.images]) == ("drawn\n[image/png]", [b"\x89PNG"])
    assert CodeTool(client, {}).run("6 * 7").text == "42"


def test_each_call_is_a_new_program(client: Client) -> None:
    tool = CodeTool(client, {"timeout_seconds": 60.0})
    assert tool.run("x = 6\nprint(x * 7)").text == "42"
    assert "NameError" in tool.run("print(x)").text
    assert "new program" in description(client)


def test_a_session_keeps_names(client: Client) -> None:
    with client.open_session() as session:
        tool = CodeTool(session, {})
        assert tool.run("x = 6").text == "The program printed nothing."
        assert tool.run("x * 7").text == "42"
        assert CodeTool(session, {"output_bytes": 1}).run("print('ab')").text == "a"
        assert "stay between calls" in description(session)
        with pytest.raises(ValueError, match=r"^requirements: must be those of the session"):
            CodeTool(session, {"requirements": ["numpy"]})


def test_requirements_of_the_tool_and_of_the_call_are_sent(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def run(code: str, **options: Any) -> Execution:
        sent.append(options)
        return Execution(status="succeeded", stdout=code)

    monkeypatch.setattr(client, "run", run)
    tool = CodeTool(client, {"requirements": "a\nb==1", "network": True})
    tool.run("1", ["c"])
    tool.run("1")
    CodeTool(client, {}).run("1", [])
    assert sent == [{"requirements": ["a", "b==1", "c"], "network": True}, {"requirements": ["a", "b==1"], "network": True}, {}]


def test_requirements_are_installed_in_a_session(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    with client.open_session() as session:
        monkeypatch.setattr(session, "install", lambda *names: installed.extend(names))
        CodeTool(session, {}).run("1", ["a", "b"])
    assert installed == ["a", "b"]


def test_a_refusal_is_text_for_the_model(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(code: str, **options: Any) -> Execution:
        raise InvalidError("requirements_txt: must be lines")

    monkeypatch.setattr(client, "run", run)
    assert CodeTool(client, {}).run("1").text == "The call was refused: requirements_txt: must be lines"


def test_an_unknown_option_is_refused_when_the_tool_is_made() -> None:
    with Client("http://127.0.0.1:1") as nowhere:
        for options, problem in {"timeot": "did you mean timeout_seconds?", "packages": "did you mean requirements?"}.items():
            with pytest.raises(TypeError, match=re.escape(f"{options}: unknown option ({problem})")):
                CodeTool(nowhere, {options: 3})
        CodeTool(nowhere, {"files": {"a": "b"}, "timeout_seconds": 3})


def test_the_async_twin(shared: Server) -> None:
    async def main() -> list[str]:
        async with AsyncClient(shared.url, TOKEN) as client, await client.open_session() as session:
            first = await CodeTool(client, {"env": {"WORD": "w"}}).run_async("import os; print(os.environ['WORD'])")
            tool = CodeTool(session, {"output_bytes": 1})
            return [first.text, (await tool.run_async("x = 1")).text, (await tool.run_async("print('ab'); x + 1")).text]

    assert asyncio.run(main()) == ["w", "The program printed nothing.", "a\n2"]


def test_an_unreachable_server_is_no_mistake_of_the_model() -> None:
    retry = python_executor.RetryPolicy(attempts=1)
    with Client("http://127.0.0.1:1", retry=retry) as nowhere, pytest.raises(python_executor.UnavailableError):
        CodeTool(nowhere, {}).run("1")
