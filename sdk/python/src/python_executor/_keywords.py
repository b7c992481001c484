"""Calls with keywords that do not exist name the one that was meant."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Callable, List, Type, TypeVar

from . import options

T = TypeVar("T")


def suggesting(cls: Type[T]) -> Type[T]:
    """Make the public methods of a class check the names of their arguments. They get no argument that they do not know."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _checked(member))
    return cls


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    known: List[str] = []
    places = 0  # arguments that need no name; -1: any number
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named = re.search(r"\[(\w+)\]", str(parameter.annotation))  # Unpack[RunOptions]
            known += options.KNOWN[getattr(options, named[1])] if named else []
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            places = -1
        else:
            known.append(parameter.name)
            places += parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        for name in given:
            if name not in known:
                raise TypeError(options.unknown(name, known))
        if 0 <= places < len(args) - 1:
            raise TypeError(f"{function.__name__}: must get at most {places} arguments without a name (got {len(args) - 1}): {', '.join(n + '=' for n in known[places:places + 3])} … take the others")
        return function(*args, **given)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **given: Any) -> Any:
            return await call(*args, **given)

        return call_async
    return call
