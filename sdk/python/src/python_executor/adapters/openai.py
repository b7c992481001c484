"""A function for the tools of OpenAI's APIs, and the handler of its calls.

    from python_executor.adapters.openai import PythonTool

    tool = PythonTool(client)
    completion = openai.chat.completions.create(model=model, messages=messages, tools=[tool.chat])
    messages += [completion.choices[0].message, *tool.answers(completion.choices[0].message.tool_calls)]
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union, cast

from ._code import NAME, AsyncTarget, CodeTool, Shown, SyncTarget, description, parameters

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionFunctionToolParam
    from openai.types.responses import FunctionToolParam
    from typing_extensions import Unpack

    from ..options import RunOptions


class PythonTool:
    """A function that runs Python code, for chat completions and for responses."""

    def __init__(self, target: Union[SyncTarget, AsyncTarget], *, name: str = NAME, **options: Unpack[RunOptions]) -> None:
        """Make the tool.

        target: A client or a session.
        options: Options of `run` for each call, such as timeout_seconds, network or requirements.
        """
        self.name = name
        self._tool = CodeTool(target, options)
        self._description = description(target)

    @property
    def chat(self) -> ChatCompletionFunctionToolParam:
        """The tool for chat.completions.create."""
        return {"type": "function", "function": {"name": self.name, "description": self._description, "parameters": parameters()}}

    @property
    def response(self) -> FunctionToolParam:
        """The tool for responses.create."""
        return {"type": "function", "name": self.name, "description": self._description, "parameters": parameters(), "strict": False}

    def answers(self, calls: Optional[Iterable[Any]]) -> List[Any]:
        """Make the calls of this tool among calls, and return the messages for the model.

        calls: The tool_calls of a chat message, or the output of a response.

        Plots are in the output of a response. In a chat a tool can only answer with text, so the last message is the user's, with the plots:
        put the answers of other tools before it.
        """
        return _messages([(c, self._tool.run(**a) if isinstance(a, dict) else Shown(a)) for c, a in self._mine(calls)])

    async def answers_async(self, calls: Optional[Iterable[Any]]) -> List[Any]:
        """Like answers, for an asynchronous client or session."""
        return _messages([(c, await self._tool.run_async(**a) if isinstance(a, dict) else Shown(a)) for c, a in self._mine(calls)])

    def _mine(self, calls: Optional[Iterable[Any]]) -> List[tuple[Any, Union[Dict[str, Any], str]]]:
        """Return the calls of this tool with their arguments, or with what is wrong with them."""
        found: List[tuple[Any, Union[Dict[str, Any], str]]] = []
        for call in calls or ():
            function = getattr(call, "function", call)
            if getattr(function, "name", None) == self.name:
                found.append((call, _arguments(function.arguments)))
        return found


def _arguments(text: str) -> Union[Dict[str, Any], str]:
    try:
        value: object = json.loads(text)
    except ValueError as e:
        return f"The arguments must be JSON: {e}"
    given = cast("Dict[str, Any]", value) if isinstance(value, dict) else {}
    requirements = given.get("requirements")
    if not isinstance(given.get("code"), str) or not (requirements is None or isinstance(requirements, list)) or set(given) - {"code", "requirements"}:
        return 'The arguments must be {"code": "…", "requirements": ["…"]}.'
    return given


def _messages(results: List[tuple[Any, Shown]]) -> List[Dict[str, Any]]:
    """Return the messages with the results of calls."""
    messages: List[Dict[str, Any]] = []
    plots: List[Dict[str, Any]] = []
    for call, shown in results:
        if getattr(call, "type", "") != "function_call":
            messages.append({"role": "tool", "tool_call_id": call.id, "content": shown.text})
            plots += [{"type": "image_url", "image_url": {"url": i.url}} for i in shown.images]
            continue
        output: Any = shown.text
        if shown.images:
            output = [{"type": "input_text", "text": shown.text}]
            output += [{"type": "input_image", "image_url": i.url, "detail": "auto"} for i in shown.images]
        messages.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    if plots:
        messages.append({"role": "user", "content": [{"type": "text", "text": "The plots of the code, in their order:"}, *plots]})
    return messages
