"""Immutable values that the master makes by the dozen for each task.

Only the type checker refuses to change them. A frozen dataclass refuses that at run time too, and
takes four times as long to construct: a tenth of the master's time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """Make a class a dataclass with slots; its fields compare and hash its objects."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
