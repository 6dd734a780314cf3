"""The log events: those of facts, and those that the code logs by name."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from dataclasses import dataclass, fields
from inspect import getdoc
from pathlib import Path

from croupier.master.log import EVENTS
from docs.site.reference.markdown import cell, table

_LEVELS = ("debug", "info", "warning", "error", "critical", "exception")


@dataclass(frozen=True, slots=True, order=True)
class LoggedEvent:
    """An event that a line of code logs."""

    name: str
    level: str
    fields: tuple[str, ...]
    module: str


def facts() -> Iterator[str]:
    """Yield the table of the master's facts."""
    rows = sorted(
        (f"`{name}`", logging.getLevelName(level), _named(each.name for each in fields(kind)),
         cell((getdoc(kind) or "").partition("\n\n")[0]))
        for kind, (name, level) in EVENTS.items()
    )  # fmt: skip
    yield from table(("Event", "Level", "Fields", "Meaning"), rows)


def logged(folder: Path) -> Iterator[str]:
    """Yield the table of the events that the modules below `folder` log by name."""
    found = sorted({event for path in sorted(folder.rglob("*.py")) for event in _events(path)})
    rows = [(f"`{e.name}`", e.level.upper(), _named(e.fields), f"`{e.module}`") for e in found]
    yield from table(("Event", "Level", "Fields", "Logged by"), rows)


def _named(names: Iterator[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _events(path: Path) -> Iterator[LoggedEvent]:
    module = path.as_posix().partition("/croupier/")[2]
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=level, value=ast.Name(id=logger)),
                args=[ast.Constant(value=str(name)), *_],
            ) if level in _LEVELS and logger.endswith(("log", "logger")) and name.isidentifier():
                words = tuple(
                    each.arg for each in node.keywords if each.arg not in (None, "exc_info")
                )
                yield LoggedEvent(name, level, tuple(filter(None, words)), f"croupier/{module}")
