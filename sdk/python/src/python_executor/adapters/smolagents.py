"""A tool for smolagents.

    from smolagents import ToolCallingAgent
    from python_executor.adapters.smolagents import PythonTool

    agent = ToolCallingAgent(model=model, tools=[PythonTool(client)])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional

from smolagents import Tool  # pyright: ignore[reportMissingTypeStubs]

from ._code import CODE, NAME, REQUIREMENTS, CodeTool, SyncTarget, description

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import RunOptions


class PythonTool(Tool):
    """A tool that runs Python code."""

    inputs: Dict[str, Any] = {
        "code": {"type": "string", "description": CODE},
        "requirements": {"type": "array", "description": REQUIREMENTS, "nullable": True},
    }
    output_type = "string"
    name = NAME
    description = "Run Python code in a sandbox and return what it prints."

    def __init__(self, target: SyncTarget, *, name: str = NAME, **options: Unpack[RunOptions]) -> None:
        """Make the tool.

        target: A client or a session. smolagents has no asynchronous tools.
        options: Options of `run` for each call, such as timeout_seconds, network or requirements.
        """
        self._tool = CodeTool(target, options)
        if self._tool.asynchronous:
            raise TypeError(f"target: must be a Client or a Session (got {type(target).__name__})")
        self.name = name
        self.description = description(target)
        super().__init__()  # pyright: ignore[reportUnknownMemberType]

    def forward(self, code: str, requirements: Optional[List[str]] = None) -> str:
        """Run code."""
        return self._tool.run(code, requirements)
