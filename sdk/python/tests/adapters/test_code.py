"""What a model reads: the text of a result. This needs no framework."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers import TOKEN, Server

import python_executor
from python_executor import AsyncClient, Client, DisplayData, Execution, Failure, InvalidError
from python_executor.adapters._code import MAX_CHARACTERS, CodeTool, description, result_text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "The program printed nothing."),
        ({"stdout": "a\n"}, "a"),
        ({"stdout": "a\n", "stderr": "b\n"}, "a\nstderr:\nb"),
        ({"stdout": "a\n", "displays": [DisplayData({"text/plain": "7"}), DisplayData({"image/png": b""})]}, "a\n7\n[image/png]"),
        ({"status": "failed", "exit_code": 3}, "The program ended with status failed and exit code 3."),
        ({"status": "killed", "signal": "SIGKILL"}, "The program ended with status killed by SIGKILL."),
        ({"status": "failed", "error": Failure(message="no package x")}, "The program ended with status failed: no package x."),
        (
            {"status": "timed_out", "session_state": "restarted"},
            "The program ended with status timed_out.\nThe interpreter was restarted: names and imports are gone, files are there.",
        ),
    ],
)
def test_the_text_of_a_result(fields: dict[str, Any], text: str) -> None:
    assert result_text(Execution(**{"status": "succeeded", **fields})) == text


def test_long_output_loses_its_middle() -> None:
    text = result_text(Execution(status="succeeded", stdout="a" * MAX_CHARACTERS + "b" * MAX_CHARACTERS))
    assert f"a\n[{MAX_CHARACTERS:,} characters are left out]\nb" in text
    assert len(text) < MAX_CHARACTERS + 100


def test_each_call_is_a_new_program(client: Client) -> None:
    tool = CodeTool(client, {"timeout_seconds": 60.0})
    assert tool.run("x = 6\nprint(x * 7)") == "42"
    assert "NameError" in tool.run("print(x)")
    assert "new program" in description(client)


def test_a_session_keeps_names(client: Client) -> None:
    with client.open_session() as session:
        tool = CodeTool(session, {})
        assert tool.run("x = 6") == "The program printed nothing."
        assert tool.run("x * 7") == "42"
        assert CodeTool(session, {"output_bytes": 1}).run("print('ab')") == "a"
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
    assert CodeTool(client, {}).run("1") == "The call was refused: requirements_txt: must be lines"


def test_the_async_twin(shared: Server) -> None:
    async def main() -> list[str]:
        async with AsyncClient(shared.url, TOKEN) as client, await client.open_session() as session:
            first = await CodeTool(client, {"env": {"WORD": "w"}}).run_async("import os; print(os.environ['WORD'])")
            tool = CodeTool(session, {"output_bytes": 1})
            return [first, await tool.run_async("x = 1"), await tool.run_async("print('ab'); x + 1")]

    assert asyncio.run(main()) == ["w", "The program printed nothing.", "a\n2"]


def test_an_unreachable_server_is_no_mistake_of_the_model() -> None:
    retry = python_executor.RetryPolicy(attempts=1)
    with Client("http://127.0.0.1:1", retry=retry) as nowhere, pytest.raises(python_executor.UnavailableError):
        CodeTool(nowhere, {}).run("1")
