"""A tool for smolagents.

    from smolagents import ToolCallingAgent
    from python_executor.adapters.smolagents import PythonTool

    tool = PythonTool(client)
    agent = ToolCallingAgent(model=model, tools=[tool], step_callbacks=[tool.show_plots])
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Dict, List, Optional

import PIL.Image
from smolagents import Tool  # pyright: ignore[reportMissingTypeStubs]

from ._code import CODE, NAME, REQUIREMENTS, CodeTool, Image, SyncTarget, description

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
        self._plots: List[Image] = []
        self.name = name
        self.description = description(target)
        super().__init__()  # pyright: ignore[reportUnknownMemberType]

    def forward(self, code: str, requirements: Optional[List[str]] = None) -> str:
        """Run code."""
        shown = self._tool.run(code, requirements)
        self._plots += shown.images
        return shown.text

    def show_plots(self, memory_step: Any) -> None:
        """Give the plots of a step to the model: a step callback of the agent. A tool of smolagents can only answer with text."""
        plots, self._plots = self._plots, []
        if plots:
            shown = [PIL.Image.open(io.BytesIO(i.data)) for i in plots]
            memory_step.observations_images = [*(memory_step.observations_images or []), *shown]
