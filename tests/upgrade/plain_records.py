"""Records of stores and checkpoints as JSON, and what one build reads differently."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

PREFIX = "croupier"


def plain(value: object) -> Any:
    """Return a record as JSON: dataclasses as objects with the names of their fields."""
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value) if each.compare]
        return {each: plain(getattr(value, each)) for each in names}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, frozenset):
        return sorted(map(plain, value))
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def difference(old: Any, new: Any, where: str = "") -> list[str]:
    """List what `old` has and `new` lacks; fields only in `new` do not count."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{where}.{key} is missing" for key in old if key not in new]
        common = (key for key in old if key in new)
        return [
            *missing,
            *(d for key in common for d in difference(old[key], new[key], f"{where}.{key}")),
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [d for n, (a, b) in pairs for d in difference(a, b, f"{where}[{n}]")]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]
