"""A tool for Pydantic AI.

    from pydantic_ai import Agent
    from python_executor.adapters.pydantic_ai import python_tool

    agent = Agent(model, tools=[python_tool(client)])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, List, Optional, Union

from pydantic import Field
from pydantic_ai import BinaryContent, Tool, ToolReturn

from ._code import CODE, NAME, REQUIREMENTS, AsyncTarget, CodeTool, Shown, SyncTarget, description

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import RunOptions

_Code = Annotated[str, Field(description=CODE)]
_Requirements = Annotated[Optional[List[str]], Field(description=REQUIREMENTS)]

def python_tool(target: Union[SyncTarget, AsyncTarget], *, name: str = NAME, **options: Unpack[RunOptions]) -> Tool[Any]:
    """Return a tool that runs Python code. The model gets its plots behind its text.

    target: A client or a session.
    options: Options of `run` for each call, such as timeout_seconds, network or requirements.
    """
    tool = CodeTool(target, options)

    def run(code: _Code, requirements: _Requirements = None) -> Any:
        return _returned(tool.run(code, requirements))

    async def run_async(code: _Code, requirements: _Requirements = None) -> Any:
        return _returned(await tool.run_async(code, requirements))

    if tool.asynchronous:
        return Tool(run_async, takes_ctx=False, name=name, description=description(target))
    return Tool(run, takes_ctx=False, name=name, description=description(target))


def _returned(shown: Shown) -> Any:
    if not shown.images:
        return shown.text
    return ToolReturn(shown.text, content=[BinaryContent(i.data, media_type=i.mime) for i in shown.images])
