"""Whether a function is still as it was when it was pickled last.

Pickling a function by value takes 0.1 ms; most programs submit the same one again and again.
"""

from __future__ import annotations

from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from croupier.futures.pickling import SCALARS

# Equal for the same function only while nothing that is pickled with it has changed. It keeps what
# it names, so identities stay unique.
Stamp: TypeAlias = tuple[Any, ...]


def stamp_of(function: Any) -> Stamp | None:
    """Return a stamp; None if changes of what the function uses would not show in it."""
    return _stamp(function, set())


def _stamp(function: FunctionType, seen: set[FunctionType]) -> Stamp | None:
    if function in seen:
        return ()
    seen.add(function)
    if function.__closure__ is not None or function.__dict__ or function.__kwdefaults__:
        return None
    defaults = function.__defaults__ or ()
    if not all(type(value) in SCALARS for value in defaults):
        return None
    parts: list[Any] = [_Same(function.__code__), defaults]
    known = function.__globals__
    for name in _names(function.__code__):
        if name not in known:
            continue
        value = known[name]
        kind = type(value)
        if kind in SCALARS:
            parts.append((name, kind, value))
        elif kind in (ModuleType, BuiltinFunctionType):
            parts.append((name, _Same(value)))
        elif kind is FunctionType:
            inner = _stamp(value, seen)
            if inner is None:
                return None
            parts.append((name, _Same(value), inner))
        else:
            return None
    return tuple(parts)


class _Same:
    """Equal to another for the same object only."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    """Return all names that the code and the functions in it use; some may be no globals."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(n for each in inner for n in _names(each))]))
