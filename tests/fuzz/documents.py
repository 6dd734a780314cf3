"""JSON documents of any type in the event log.

Rule: the types are those of the list of names, so a new kind of event is fuzzed without an edit. A
type that has no generator is a TypeError.
"""

from __future__ import annotations

import dataclasses
import random
import types
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from croupier.model.codec import ERRORS, KIND, Codec
from croupier.model.errors import CroupierError
from croupier.model.resources import Resources
from croupier.model.task import Command
from tests.fuzz.values import Values

_WHOLE: Final = (0, 1, 2, 3, 1000, -1, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, 10**30)
_REAL: Final = (0.0, 1.5, 600.0, -1.0, 1e15, 1e300, 1e308, 5, -(10**400), float("inf"))
_WRONG: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    {"kind": "x"},
    10**400,
    "\ud800",
)
_NAMES: Final = ("cpus", "mem", "disk", "gpus", "ports", "é", "")


class Documents:
    """A source of documents that a decoder of the format may be given."""

    def __init__(self, rng: random.Random, values: Values, codec: Codec) -> None:
        self._rng, self._values, self._codec = rng, values, codec

    def document(self, hint: Any, name: str = "") -> Any:
        """Return a document of the type `hint`; mostly one that can be decoded."""
        while hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        origin, parts = get_origin(hint), get_args(hint)
        if hint in (None, types.NoneType):
            return None
        if origin in (Union, types.UnionType):
            return self._of_union(parts, name)
        if origin is Literal:
            return self._rng.choice(parts)
        if origin is tuple and parts[1:] != (Ellipsis,):
            return [self.document(part, name) for part in parts]
        if origin in (tuple, frozenset):
            return [self.document(parts[0], name) for _ in range(self._count())]
        if origin in (dict, Mapping):
            keys = [self.document(parts[0], name) for _ in range(self._count())]
            return {key: self.document(parts[1], name) for key in keys}
        if isinstance(hint, type):
            return self._of_class(hint, name)
        raise TypeError(f"no generator for {hint!r}")

    def damaged(self, document: Any) -> Any:
        """Return a copy with one change at a random depth."""
        if isinstance(document, dict) and document and self._rng.random() < 0.85:
            key = self._rng.choice(list(document))
            return {**document, key: self.damaged(document[key])}
        if isinstance(document, list) and document and self._rng.random() < 0.85:
            at = self._rng.randrange(len(document))
            return [*document[:at], self.damaged(document[at]), *document[at + 1 :]]
        return self._rng.choice(_CHANGES)(document, self._rng)

    def _of_union(self, parts: tuple[Any, ...], name: str) -> Any:
        part = self._rng.choice(parts)
        document = self.document(part, name)
        if dataclasses.is_dataclass(part) and all(map(dataclasses.is_dataclass, parts)):
            return {KIND: self._codec.name(part), **document}  # type: ignore[arg-type]
        return document

    def _of_class(self, cls: type, name: str) -> Any:
        for special, make in _SPECIAL.items():
            if issubclass(cls, special):
                return make(self._rng, self._values)
        if issubclass(cls, Enum):
            return self._codec.name(cls, self._rng.choice(list(cls.__members__)))
        if not dataclasses.is_dataclass(cls):
            raise TypeError(f"no generator for {cls.__name__}")
        document = {}
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if not field.init:
                continue
            tag = self._codec.name(cls, field.name)
            has_default = (
                field.default is not dataclasses.MISSING
                or field.default_factory is not dataclasses.MISSING
            )
            if not has_default or self._rng.random() < 0.6:
                document[tag] = self.document(hints[field.name], tag)
        if cls is Command and self._rng.random() < 0.2:
            # The event log writes only the size of a command.
            return self._rng.choice(_WHOLE)
        return document

    def _count(self) -> int:
        return self._rng.choice((0, 1, 1, 2, 3, 40 if self._rng.random() < 0.05 else 1))


def _resources(rng: random.Random, _: Values) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: rng.choice(_WHOLE),
        lambda: [[31_000, 31_999]],
        lambda: [[rng.choice(_WHOLE), rng.choice(_WHOLE)] for _ in range(3)],
        lambda: {"set": ["a", "b"]},
    )
    return {rng.choice(_NAMES): rng.choice(kinds)() for _ in range(rng.randrange(4))}


def _error(rng: random.Random, values: Values) -> Any:
    return {KIND: rng.choice(list(ERRORS)), "text": values.text("message")}


_SPECIAL: Final[Mapping[type, Callable[[random.Random, Values], Any]]] = {
    Resources: _resources,
    CroupierError: _error,
    Fraction: lambda rng, _: [rng.choice(_WHOLE), rng.choice(_WHOLE)],
    bool: lambda rng, _: rng.random() < 0.5,
    int: lambda rng, _: rng.choice(_WHOLE),
    float: lambda rng, _: rng.choice(_REAL),
    bytes: lambda rng, _: b64encode(rng.randbytes(rng.choice((0, 1, 3, 100)))).decode(),
    str: lambda rng, values: values.text(rng.choice(("framework_id", "task_id", "agent_id"))),
}


def _deep(_: Any, __: random.Random) -> Any:
    nested: Any = 0
    for _ in range(500):
        nested = [nested]
    return nested


_CHANGES: Final[tuple[Callable[[Any, random.Random], Any], ...]] = (
    lambda document, rng: rng.choice(_WRONG),
    lambda document, rng: rng.choice(_WRONG),
    lambda document, rng: [document, document],
    lambda document, rng: {"kind": document},
    lambda document, rng: {**document, "x": 1} if isinstance(document, dict) else {},
    lambda document, rng: str(document)[:1000],
    _deep,
)
