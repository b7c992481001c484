"""Calls of OpenAI's package are answered: a scripted server stands for the model."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Callable

import httpx
import pytest
from helpers import TOKEN, Server

from python_executor import AsyncClient, Client
from python_executor.adapters.openai import PythonTool

ARGUMENTS = json.dumps({"code": "print(6 * 7)"})


@pytest.fixture(autouse=True)
def installed(package: Callable[[str], Any]) -> None:
    package("openai")


def chat(request: httpx.Request) -> httpx.Response:
    """A model that calls the tool, and then repeats the output."""
    body = json.loads(request.content)
    last = body["messages"][-1]
    if last["role"] == "tool":
        message = {"role": "assistant", "content": "it said: " + last["content"]}
    else:
        function = body["tools"][0]["function"]
        assert function["parameters"]["required"] == ["code"]
        call = {"id": "call_1", "type": "function", "function": {"name": function["name"], "arguments": ARGUMENTS}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return httpx.Response(200, json={"id": "1", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]})


def response(request: httpx.Request) -> httpx.Response:
    """The same model behind the other API."""
    body = json.loads(request.content)
    last = body["input"][-1]
    if last.get("type") == "function_call_output":
        text = {"type": "output_text", "text": "it said: " + last["output"], "annotations": []}
        item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    else:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": body["tools"][0]["name"], "arguments": ARGUMENTS}
    made = {"id": "1", "object": "response", "created_at": 0, "model": "scripted", "output": [item], "status": "completed"}
    return httpx.Response(200, json={**made, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})


def transported(cls: Any, transport: Any, handler: Callable[[httpx.Request], httpx.Response]) -> Any:
    return cls(api_key="none", base_url="http://scripted/v1", http_client=transport(transport=httpx.MockTransport(handler)))


def test_a_chat_calls_the_tool(client: Client) -> None:
    import openai

    tool = PythonTool(client, timeout_seconds=60)
    model = transported(openai.OpenAI, httpx.Client, chat)
    messages: list[Any] = [{"role": "user", "content": "6 * 7?"}]
    for _ in range(2):
        message = model.chat.completions.create(model="scripted", messages=messages, tools=[tool.chat]).choices[0].message
        messages += [message, *tool.answers(message.tool_calls)]
    assert messages[-1].content == "it said: 42"


def test_a_response_calls_the_tool(shared: Server) -> None:
    import openai

    async def main() -> str:
        async with AsyncClient(shared.url, TOKEN) as client:
            tool = PythonTool(client)
            model = transported(openai.AsyncOpenAI, httpx.AsyncClient, response)
            items: list[Any] = [{"role": "user", "content": "6 * 7?"}]
            for _ in range(2):
                answer = await model.responses.create(model="scripted", input=items, tools=[tool.response])
                items += [*answer.output, *await tool.answers_async(answer.output)]
            return str(answer.output_text)

    assert asyncio.run(main()) == "it said: 42"


def call(arguments: str, name: str = "run_python") -> Any:
    from openai.types.chat import ChatCompletionMessageFunctionToolCall

    return ChatCompletionMessageFunctionToolCall(id="1", type="function", function={"name": name, "arguments": arguments})  # type: ignore[arg-type]


def test_wrong_arguments_are_told_to_the_model(client: Client) -> None:
    tool = PythonTool(client)
    for arguments, text in [
        ("{", "The arguments must be JSON: "),
        ("[]", 'The arguments must be {"code"'),
        ('{"code": 1}', 'The arguments must be {"code"'),
        ('{"code": "1", "requirements": "numpy"}', 'The arguments must be {"code"'),
        ('{"code": "1", "other": 1}', 'The arguments must be {"code"'),
    ]:
        (answer,) = tool.answers([call(arguments)])
        assert answer["tool_call_id"] == "1"
        assert answer["content"].startswith(text)


def test_calls_of_other_tools_are_left_alone(client: Client) -> None:
    assert PythonTool(client).answers([call(ARGUMENTS, "other")]) == []
    assert PythonTool(client).answers(None) == []


def test_the_model_sees_plots(client: Client, plot: str) -> None:
    from openai.types.responses import ResponseFunctionToolCall

    arguments = json.dumps({"code": plot})
    with client.open_session() as session:
        tool = PythonTool(session)
        first, second, plots = tool.answers([call(arguments), call(arguments)])
        (output,) = tool.answers([ResponseFunctionToolCall(type="function_call", call_id="1", name="run_python", arguments=arguments)])
    assert first["role"] == second["role"] == "tool" and first["content"] == "drawn\n[image/png]"
    assert plots["role"] == "user" and [c["type"] for c in plots["content"]] == ["text", "image_url", "image_url"]
    assert plots["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert [c["type"] for c in output["output"]] == ["input_text", "input_image"]
