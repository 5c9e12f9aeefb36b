"""Decorators of SGLang's functions, each written as one function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any


def wrapping(around: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Turn `around(decorated, *args, **kwargs)` into a decorator."""

    def decorate(decorated: Callable[..., Any]) -> Any:
        @wraps(decorated)
        def called(*args: Any, **kwargs: Any) -> Any:
            return around(decorated, *args, **kwargs)

        @wraps(decorated)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await around(decorated, *args, **kwargs)

        return awaited if inspect.iscoroutinefunction(around) else called

    return decorate


def named(
    decorated: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the arguments of a call by the names of the decorated function."""
    return _signature(decorated).bind(*args, **kwargs).arguments


_signature = cache(inspect.signature)
