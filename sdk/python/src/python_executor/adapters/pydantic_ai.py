"""A tool for Pydantic AI.

    from pydantic_ai import Agent
    from python_executor.adapters.pydantic_ai import python_tool

    agent = Agent(model, tools=[python_tool(client)])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Union

from pydantic_ai import Tool

from ._code import NAME, AsyncTarget, CodeTool, SyncTarget, description, parameters

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import RunOptions


def python_tool(target: Union[SyncTarget, AsyncTarget], *, name: str = NAME, **options: Unpack[RunOptions]) -> Tool[Any]:
    """Return a tool that runs Python code.

    target: A client or a session.
    options: Options of `run` for each call, such as timeout_seconds, network or requirements.
    """
    tool = CodeTool(target, options)

    def run(code: str, requirements: Optional[List[str]] = None) -> str:
        return tool.run(code, requirements)

    async def run_async(code: str, requirements: Optional[List[str]] = None) -> str:
        return await tool.run_async(code, requirements)

    made: Tool[Any] = Tool(run_async if tool.asynchronous else run, takes_ctx=False, name=name, description=description(target))
    made.function_schema.json_schema = parameters()
    return made
