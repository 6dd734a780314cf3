"""The public names of the SDK, with their signatures and docstrings."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final, NewType

from docs.site.reference.markdown import cell, code, docstring, table


def module(each: ModuleType) -> Iterator[str]:
    """Yield the sections of a module's public names."""
    yield from ("", f"## {each.__name__}")
    yield from docstring(each.__doc__)
    for name in sorted(each.__all__):
        yield from ("", f"### {name}")
        yield from _name(name, getattr(each, name))


def _name(name: str, value: object) -> Iterator[str]:
    if isinstance(value, enum.EnumMeta):
        yield from docstring(value.__doc__)
        yield from ("", *table(("Member", "Value"), _members(value)))
    elif inspect.isclass(value) and issubclass(value, BaseException):
        yield from docstring(value.__doc__)
    elif inspect.isclass(value):
        yield from ("", *code(_signature(name, value), "python"))
        yield from docstring(value.__doc__)
        yield from _constructor(value)
        bases = [base for base in reversed(value.__mro__) if _package(base) == _package(value)]
        members = {name: each for base in bases for name, each in vars(base).items()}
        for member in sorted(members):
            yield from _member(member, members[member])
    elif isinstance(value, NewType):
        yield from ("", f"A `{value.__supertype__.__name__}`.")
    elif inspect.isroutine(value):
        yield from ("", *code(_signature(name, value), "python"))
        yield from docstring(value.__doc__)
    else:
        yield from docstring(inspect.getdoc(value))


def _package(value: type) -> str:
    return value.__module__.rpartition(".")[0]


def _members(value: enum.EnumMeta) -> Iterator[tuple[str, str]]:
    members: Mapping[str, enum.Enum] = value.__members__
    for name, each in members.items():
        yield f"`{name}`", cell(str(each.value))


def _constructor(value: type) -> Iterator[str]:
    written = vars(value).get("__init__")
    if inspect.isfunction(written) and written.__doc__:
        yield from docstring(written.__doc__)


def _member(name: str, value: object) -> Iterator[str]:
    if name.startswith("_"):
        return
    if isinstance(value, property):
        text = " ".join(inspect.cleandoc(value.__doc__ or "").split())
        yield from ("", f"**`{name}`**: {cell(text)}"[:119])
    elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        yield from ("", *code(_signature(name, function), "python"))
        yield from docstring(function.__doc__)


def _signature(name: str, value: object) -> str:
    """Return a definition as it would be written, one parameter on each line if it is long."""
    assert callable(value)
    try:
        found = inspect.signature(value)
    except ValueError:
        return name
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    parts = [_parameter(each) for each in found.parameters.values() if each.name != "self"]
    kinds = [each.kind for each in found.parameters.values() if each.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = found.return_annotation
    shown = "" if returned in (inspect.Signature.empty, None, "None") else f" -> {returned}"
    line = f"{prefix}{name}({', '.join(parts)}){shown}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{prefix}{name}(\n{inner}){shown}"


_STARS: Final[Mapping[object, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _parameter(each: inspect.Parameter) -> str:
    stars = _STARS.get(each.kind, "")
    typed = "" if each.annotation is each.empty else f": {each.annotation}"
    if each.default is each.empty:
        return f"{stars}{each.name}{typed}"
    equals = " = " if typed else "="
    return f"{stars}{each.name}{typed}{equals}{_default(each.default)}"


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    shown = repr(value)
    return "..." if shown.startswith("<") or len(shown) > 60 else shown
