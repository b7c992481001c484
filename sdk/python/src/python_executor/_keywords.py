"""Calls with keywords that do not exist name the one that was meant."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Callable, List, Tuple, Type, TypeVar, cast

from . import options

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def suggesting(cls: Type[T]) -> Type[T]:
    """Make the public methods of a class check the names of their arguments. They get no argument that they do not know."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _checked(member))
    return cls


def checking(function: F) -> F:
    """Make a function check the names of its arguments, as `suggesting` does for methods."""
    return cast(F, _checked(function, own=0))


def known_keywords(function: Callable[..., Any]) -> List[str]:
    """Return the names that a method takes by keyword, with those of its options."""
    return _parameters(function, 1)[0]


def _parameters(function: Callable[..., Any], own: int) -> Tuple[List[str], int]:
    known: List[str] = []
    places = 0  # arguments that need no name; -1: any number
    for parameter in list(inspect.signature(function).parameters.values())[own:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named = re.search(r"\[(\w+)\]", str(parameter.annotation))  # Unpack[RunOptions]
            known += options.KNOWN[getattr(options, named[1])] if named else []
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            places = -1
        else:
            known.append(parameter.name)
            places += parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    return known, places


def _checked(function: Callable[..., Any], own: int = 1) -> Callable[..., Any]:
    """Return the function with checks. The first `own` arguments are not the caller's: self."""
    known, places = _parameters(function, own)

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        for name in given:
            if name not in known:
                raise TypeError(options.unknown(name, known))
        if 0 <= places < len(args) - own:
            raise TypeError(f"{function.__name__}: must get at most {places} arguments without a name (got {len(args) - own}): {', '.join(n + '=' for n in known[places:places + 3])} … take the others")
        return function(*args, **given)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **given: Any) -> Any:
            return await call(*args, **given)

        return call_async
    return call
