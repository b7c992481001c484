"""LangChain's own agent calls the tool and gets its output."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import pytest
from helpers import TOKEN, Server

from python_executor import AsyncClient, Client


@pytest.fixture(autouse=True)
def installed(package: Callable[[str], Any]) -> None:
    package("langchain")


def scripted(*calls: dict[str, Any]) -> Any:
    """A model that makes these calls, one at a time, and then answers with the output of the last."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        tools: list[Any] = []

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            self.tools = list(tools)
            return self

        def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
            outputs = [m for m in messages if isinstance(m, ToolMessage)]
            if len(outputs) < len(calls):
                call = {"name": "run_python", "args": calls[len(outputs)], "id": str(len(outputs))}
                message = AIMessage("", tool_calls=[call])  # type: ignore[list-item]
            else:
                message = AIMessage("it said: " + str(outputs[-1].content))
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Scripted()


def test_an_agent_calls_the_tool(client: Client) -> None:
    from langchain.agents import create_agent

    from python_executor.adapters.langchain import python_tool

    model = scripted({"code": "print(1)", "requirements": None}, {"code": "print(6 * 7)"})
    answer = create_agent(model, tools=[python_tool(client, timeout_seconds=60)]).invoke({"messages": [("user", "6 * 7?")]})
    assert [m.content for m in answer["messages"] if m.type == "tool"] == ["1", "42"]
    assert answer["messages"][-1].content == "it said: 42"


def test_an_agent_calls_the_tool_in_an_event_loop(shared: Server) -> None:
    from langchain.agents import create_agent

    from python_executor.adapters.langchain import python_tool

    async def main() -> Any:
        async with AsyncClient(shared.url, TOKEN) as client, await client.open_session() as session:
            agent = create_agent(scripted({"code": "x = 6"}, {"code": "x * 7"}), tools=[python_tool(session)])
            return await agent.ainvoke({"messages": [("user", "6 * 7?")]})

    assert asyncio.run(main())["messages"][-1].content == "it said: 42"


def test_the_model_sees_plots(client: Client, plot: str) -> None:
    from python_executor.adapters.langchain import python_tool

    with client.open_session() as session:
        answer = python_tool(session).invoke({"type": "tool_call", "id": "1", "name": "run_python", "args": {"code": plot}})
    text, image = answer.content
    assert text == {"type": "text", "text": "drawn\n[image/png]"}
    assert image["type"] == "image" and image["mime_type"] == "image/png" and image["base64"].startswith("iVBOR")


def test_the_model_sees_the_schema(client: Client) -> None:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    from python_executor.adapters.langchain import python_tool

    function = convert_to_openai_tool(python_tool(client, name="calculator"))["function"]
    assert function["name"] == "calculator"
    assert "sandbox" in function["description"]
    assert set(function["parameters"]["properties"]) == {"code", "requirements"}
    assert function["parameters"]["required"] == ["code"]
