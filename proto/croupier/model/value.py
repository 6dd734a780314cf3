"""Immutable values of which each task makes many: the type checker alone keeps them so.

A frozen dataclass also refuses changes at run time. This makes its construction four times as slow,
which was a tenth of the master's time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """Make a class a dataclass with slots; its fields compare and hash its objects."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
