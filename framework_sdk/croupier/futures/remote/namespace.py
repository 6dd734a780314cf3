"""The globals of functions that are sent by value: one namespace for each module, in each process.

Rule: a worker's process is like one that has imported the module. What an initializer or a call did
to a global stays for later calls, until the program that submits them has changed the same global.

Both sides import this file as `_croupier_namespace`, because workers have no Croupier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Digest = Any

# By the namespace's key: its variables, and what each was when it was received last.
_SPACES: dict[str, dict[str, Any]] = {}
_RECEIVED: dict[str, dict[str, Digest]] = {}


class Space:
    """A reference to a namespace; unpickled, it is the namespace of the process."""

    def __init__(self, key: str, basics: dict[str, Any]) -> None:
        self.key, self.basics = key, basics

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return space, (self.key, self.basics)


def space(key: str, basics: dict[str, Any]) -> dict[str, Any]:
    """Return the namespace; at first it has the `basics`, such as `__name__`."""
    found = _SPACES.get(key)
    if found is None:
        found = _SPACES[key] = dict(basics)
    return found


def set_state(function: Any, state: tuple[str, dict[str, Digest], Any, Any]) -> None:
    """Complete an unpickled function; globals that were received before are left alone."""
    key, digests, original, set_original = state
    received = _RECEIVED.setdefault(key, {})
    slots = original[1]
    slots["__globals__"] = {
        name: value
        for name, value in slots["__globals__"].items()
        if name not in received or received[name] != digests[name]
    }
    received.update(digests)
    set_original(function, original)
