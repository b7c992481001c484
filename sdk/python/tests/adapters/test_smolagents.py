"""smolagents' own agent calls the tool and gets its output."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from python_executor import AsyncClient, Client


@pytest.fixture(autouse=True)
def installed(package: Callable[[str], Any]) -> None:
    package("smolagents")


def scripted(*calls: tuple[str, dict[str, Any]]) -> Any:
    """A model that makes these calls, one at a time. The text of all that it has read is in `read`."""
    from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole, Model

    class Scripted(Model):
        read = ""
        made = 0

        def generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatMessage:
            self.read = str(messages)
            name, arguments = calls[self.made]
            self.made += 1
            function = ChatMessageToolCallFunction(name=name, arguments=arguments)
            call = ChatMessageToolCall(id=str(self.made), type="function", function=function)
            return ChatMessage(MessageRole.ASSISTANT, "", [call])

    return Scripted(model_id="scripted")


def test_an_agent_calls_the_tool(client: Client) -> None:
    from smolagents import ToolCallingAgent
    from smolagents.monitoring import LogLevel

    from python_executor.adapters.smolagents import PythonTool

    model = scripted(
        ("calculator", {"code": "print(1)", "requirements": []}),
        ("calculator", {"code": "print('it said:', 6 * 7)"}),
        ("final_answer", {"answer": "done"}),
    )
    tool = PythonTool(client, name="calculator", timeout_seconds=60)
    agent = ToolCallingAgent(tools=[tool], model=model, verbosity_level=LogLevel.OFF)
    assert agent.run("6 * 7?") == "done"
    assert "it said: 42" in model.read


def test_an_asynchronous_client_is_refused() -> None:
    from python_executor.adapters.smolagents import PythonTool

    with pytest.raises(TypeError, match=r"^target: must be a Client or a Session \(got AsyncClient\)$"):
        PythonTool(AsyncClient("http://127.0.0.1:1"))  # type: ignore[arg-type]


def test_the_model_sees_plots(client: Client, plot: str) -> None:
    from smolagents import ToolCallingAgent
    from smolagents.monitoring import LogLevel

    from python_executor.adapters.smolagents import PythonTool

    with client.open_session() as session:
        tool = PythonTool(session)
        model = scripted(("run_python", {"code": plot}), ("final_answer", {"answer": "done"}))
        ToolCallingAgent(tools=[tool], model=model, verbosity_level=LogLevel.OFF, step_callbacks=[tool.show_plots]).run("plot")
    assert "drawn" in model.read and "PngImageFile" in model.read
