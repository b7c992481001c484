"""A tool for LangChain and LangGraph.

    from langchain.agents import create_agent
    from python_executor.adapters.langchain import python_tool

    agent = create_agent(model, tools=[python_tool(client)])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field

from ._code import CODE, NAME, REQUIREMENTS, AsyncTarget, CodeTool, Shown, SyncTarget, description

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import RunOptions


#: The content of a message: text, or blocks.
Content = Union[str, List[Dict[str, Any]]]


class _Arguments(BaseModel):
    code: str = Field(description=CODE)
    requirements: Optional[List[str]] = Field(default=None, description=REQUIREMENTS)


def python_tool(target: Union[SyncTarget, AsyncTarget], *, name: str = NAME, **options: Unpack[RunOptions]) -> StructuredTool:
    """Return a tool that runs Python code. An asynchronous client is for asynchronous agents only.

    Plots are content blocks of the message of the tool, behind its text.

    target: A client or a session.
    options: Options of `run` for each call, such as timeout_seconds, network or requirements.
    """
    tool = CodeTool(target, options)

    def run(code: str, requirements: Optional[List[str]] = None) -> Content:
        return _content(tool.run(code, requirements))

    async def run_async(code: str, requirements: Optional[List[str]] = None) -> Content:
        return _content(await tool.run_async(code, requirements))

    return StructuredTool.from_function(
        func=None if tool.asynchronous else run,
        coroutine=run_async if tool.asynchronous else None,
        name=name,
        description=description(target),
        args_schema=_Arguments,
    )


def _content(shown: Shown) -> Content:
    if not shown.images:
        return shown.text
    return [{"type": "text", "text": shown.text}, *({"type": "image", "base64": i.base64, "mime_type": i.mime} for i in shown.images)]
