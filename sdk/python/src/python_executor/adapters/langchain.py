"""A tool for LangChain and LangGraph.

    from langchain.agents import create_agent
    from python_executor.adapters.langchain import python_tool

    agent = create_agent(model, tools=[python_tool(client)])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Union

from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field

from ._code import CODE, NAME, REQUIREMENTS, AsyncTarget, CodeTool, SyncTarget, description

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import RunOptions


class _Arguments(BaseModel):
    code: str = Field(description=CODE)
    requirements: Optional[List[str]] = Field(default=None, description=REQUIREMENTS)


def python_tool(target: Union[SyncTarget, AsyncTarget], *, name: str = NAME, **options: Unpack[RunOptions]) -> StructuredTool:
    """Return a tool that runs Python code. An asynchronous client is for asynchronous agents only.

    target: A client or a session.
    options: Options of `run` for each call, such as timeout_seconds, network or requirements.
    """
    tool = CodeTool(target, options)
    return StructuredTool.from_function(
        func=None if tool.asynchronous else tool.run,
        coroutine=tool.run_async if tool.asynchronous else None,
        name=name,
        description=description(target),
        args_schema=_Arguments,
    )
