"""The help of the `croupier` command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cyclopts import App

from croupier.ctl.app import SUMMARIES, app, load_commands


def commands(parent: App, path: str = "croupier") -> Iterator[tuple[str, App]]:
    """Yield every command that can be run, with its words."""
    for name in parent:
        if name.startswith("-"):
            continue
        child = parent[name]
        yield f"{path} {name}", child
        yield from commands(child, f"{path} {name}")


load_commands()
COMMANDS = dict(commands(app))


def test_all_commands_are_found() -> None:
    assert {"croupier run", "croupier drain", "croupier weights set"} <= COMMANDS.keys()


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_each_of_its_parameters_has_a_help_text(words: str) -> None:
    command = COMMANDS[words]
    assert command.help
    if command.default_command is None:
        return
    arguments = command.assemble_argument_collection(parse_docstring=True)
    assert [each.name for each in arguments if each.show and not each.parameter.help] == []


@pytest.mark.parametrize("name", [name for name, summary in SUMMARIES.items() if summary])
def test_the_table_of_commands_has_the_first_line_of_each_help(name: str) -> None:
    first = COMMANDS[f"croupier {name}"].help.partition("\n")[0]
    assert first == SUMMARIES[name]
