"""Text scenarios whose blocks are cases: commands, and indented below them all of their effects."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Protocol

INDENT = "    "


class Case(Protocol):
    """One case; methods `_do_NAME` are its commands."""

    def take(self) -> list[str]:
        """Return a line for each effect since the last call."""


def run_cases(text: str, make: Callable[[], Case]) -> str:
    """Run each block of the text as a case, and return it with the effects that there were."""
    blocks = text.strip().split("\n\n")
    return "\n\n".join("\n".join(_run_block(make(), block)) for block in blocks) + "\n"


def _run_block(case: Case, block: str) -> Iterator[str]:
    for line in block.splitlines():
        if line.startswith(INDENT):
            continue
        yield line
        if line.startswith("#"):
            continue
        found = [each for command in line.removeprefix("given ").split(" | ")
                 for each in _run_command(case, command)]  # fmt: skip
        if not line.startswith("given "):
            yield from textwrap.wrap(
                "; ".join(found), 118, initial_indent=INDENT, subsequent_indent=INDENT,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip


def _run_command(case: Case, command: str) -> list[str]:
    """Run `NAME WORD ... OPTION=VALUE ... : TEXT`; return its effects and what it prints."""
    command, _, text = command.partition(" : ")
    name, *words = command.split()
    is_option = re.compile(r"[a-z]+=").match
    options = dict(word.split("=", 1) for word in words if is_option(word))
    if text:
        options["text"] = text
    handler: Callable[..., str | None] = getattr(case, "_do_" + name.replace("-", "_"))
    printed = handler(*(word for word in words if not is_option(word)), **options)
    return [*case.take(), *([printed] if printed else [])]
