"""Pydantic AI's own agent calls the tool and gets its output."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import pytest
from helpers import TOKEN, Server

from python_executor import AsyncClient, Client


@pytest.fixture(autouse=True)
def installed(package: Callable[[str], Any]) -> None:
    package("pydantic_ai")


def scripted(*calls: dict[str, Any], seen: Any = None) -> Any:
    """A model that makes these calls, one at a time, and then answers with the output of the last."""
    from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    seen = [] if seen is None else seen

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (tool,) = info.function_tools
        assert tool.parameters_json_schema["required"] == ["code"]
        assert all("description" in p for p in tool.parameters_json_schema["properties"].values())
        seen.extend(c for m in messages for p in m.parts if isinstance(p, UserPromptPart) for c in p.content if isinstance(c, BinaryContent))
        outputs = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
        if len(outputs) < len(calls):
            return ModelResponse(parts=[ToolCallPart(tool.name, calls[len(outputs)])])
        return ModelResponse(parts=[TextPart("it said: " + str(outputs[-1].content))])

    return FunctionModel(answer)


def test_an_agent_calls_the_tool(client: Client) -> None:
    from pydantic_ai import Agent

    from python_executor.adapters.pydantic_ai import python_tool

    model = scripted({"code": "print(1)", "requirements": []}, {"code": "print(6 * 7)"})
    agent = Agent(model, tools=[python_tool(client, name="calculator", timeout_seconds=60)])
    assert agent.run_sync("6 * 7?").output == "it said: 42"


def test_an_agent_calls_the_tool_in_an_event_loop(shared: Server) -> None:
    from pydantic_ai import Agent

    from python_executor.adapters.pydantic_ai import python_tool

    async def main() -> str:
        async with AsyncClient(shared.url, TOKEN) as client, await client.open_session() as session:
            agent = Agent(scripted({"code": "x = 6"}, {"code": "x * 7"}), tools=[python_tool(session)])
            return (await agent.run("6 * 7?")).output

    assert asyncio.run(main()) == "it said: 42"


def test_the_model_sees_plots(client: Client, plot: str) -> None:
    from pydantic_ai import Agent

    from python_executor.adapters.pydantic_ai import python_tool

    seen: list[Any] = []
    with client.open_session() as session:
        output = Agent(scripted({"code": plot}, seen=seen), tools=[python_tool(session)]).run_sync("plot").output
    assert output == "it said: drawn\n[image/png]"
    assert [(c.media_type, c.data[:4]) for c in seen] == [("image/png", b"\x89PNG")]
