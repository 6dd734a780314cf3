"""`croupier completion`: the words that may follow each command, from the command line itself.

A line is KIND, WORD, VALUES and HELP, joined by tabs. KIND is `c` for a command, `f` for a flag and
`p` for a positional argument, in their order. VALUES are empty for a switch, `-` for any text,
`@files`, `@agents` and the like, or words joined by spaces. A script calls `croupier complete` for
ids: that is fast, and silent. Without a quick answer there are none. No id has a character that a
shell gives a meaning to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from cyclopts import App

from croupier.cli.connection import connected
from croupier.cli.flags import CONNECTION_FLAGS, LOCAL, MasterFlag, Target
from croupier.cli.terminal import View
from croupier.ctl.app import app, load_commands
from croupier.ctl.completion_scripts import script
from croupier.ctl.lists import first_page
from croupier.ctl.top.snapshot import TROUBLED
from croupier.ctl.views.task import is_live
from croupier.model.errors import CroupierError
from croupier.model.task import TaskState

ANY: Final = "-"
FILES: Final = "@files"
FILE_FLAGS: Final = frozenset({"--tls-ca", "--tls-cert", "--tls-key", "--token-file"})
MAX_HELP: Final = 60
# Flags that take ids, for all commands.
_FLAGS: Final = {"--agent": "agents", "--framework": "frameworks", "--role": "roles"}
# The help of positional arguments that are ids begins like this.
_HELPS: Final = {
    "Agent id": "agents",
    "Framework id": "frameworks",
    "Task id": "tasks",
    "The role": "roles",
}
_STATES: Final = {
    "tasks": tuple(state.name for state in TaskState),
    "agents": ("connected", *TROUBLED),
}

TIMEOUT_S: Final = 1.5
MOST: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/@+:-]+")

# For each list the key of its ids, and what is shown beside them.
KINDS: Final[dict[str, tuple[str, Callable[[View], str]]]] = {
    "agents": ("agent_id", lambda view: str(view["hostname"])),
    "frameworks": ("framework_id", lambda view: str(view["name"])),
    "tasks": ("task_id", lambda view: f"{view['state']} {view['name']}"),
    "roles": ("role", lambda _: ""),
}


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands, flags, and ids of agents, frameworks and tasks.

    bash: croupier completion bash > ~/.local/share/bash-completion/completions/croupier

    zsh: croupier completion zsh > DIRECTORY/_croupier, where DIRECTORY is in fpath

    fish: croupier completion fish > ~/.config/fish/completions/croupier.fish

    Generate it again after an upgrade. It completes ids from the masters of --master or
    CROUPIER_MASTER.

    Args:
        shell: The shell that reads the script.
    """
    load_commands()
    print(script(shell, table(app)), end="")


def table(app: App) -> dict[str, list[str]]:
    """Return the lines that may follow each command; the key of `app` itself is empty."""
    return dict(_tables(app, ()))


def _tables(app: App, path: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    lines = []
    # Commands are added in the order in which their modules are loaded.
    names = app if path else sorted(app)
    children = [(name, app[name]) for name in names if not name.startswith("-")]
    for name, child in children:
        if child.show:
            lines.append(_line("c", name, "", child.help))
    if app.default_command is not None and path:
        lines += _arguments(app, path)
    for name in CONNECTION_FLAGS if not path else ():
        values = FILES if name in FILE_FLAGS else ANY
        lines.append(_line("f", name, values, "The same as after the command."))
    lines.append(_line("f", "--help", "", "Display this message and exit."))
    yield " ".join(path), lines
    for name, child in children:
        yield from _tables(child, (*path, name))


def _arguments(app: App, path: tuple[str, ...]) -> Iterator[str]:
    for each in app.assemble_argument_collection(parse_docstring=True):
        if not each.show:
            continue
        names = [name for name in each.names if name.startswith("-")]
        text = each.parameter.help or ""
        if not names:
            yield _line("p", each.name, _values(each, path, each.name), text)
        for name in names:
            yield _line("f", name, "" if each.is_flag() else _values(each, path, name), text)


def _values(argument: Any, path: tuple[str, ...], name: str) -> str:
    choices = argument.get_choices()
    if choices:
        return " ".join(choices)
    if name == "--state" and path[-1] in _STATES:
        return " ".join(_STATES[path[-1]])
    text = argument.parameter.help or ""
    kind = _FLAGS.get(name) or next((k for h, k in _HELPS.items() if text.startswith(h)), None)
    # Files of `croupier cert` name agents that do not exist yet.
    if kind is not None and path[0] not in ("cert", "local"):
        assert kind in KINDS
        return f"@{kind}"
    return FILES if "Path" in str(argument.hint) else ANY


def _line(kind: str, word: str, values: str, text: str) -> str:
    return "\t".join((kind, word, values or "", _short(text)))


def _short(text: str) -> str:
    """Return the first sentence of a help text, without what shells give a meaning to."""
    first = re.split(r"(?<=[.:;])\s", " ".join(text.split()), maxsplit=1)[0].rstrip(".:;")
    plain = re.sub(r"[^\w ,./()=+-]", "", first, flags=re.ASCII)
    return plain if len(plain) <= MAX_HELP else plain[: MAX_HELP - 3].rstrip() + "..."


@app.command(show=False)
def complete(
    kind: Literal["agents", "frameworks", "tasks", "roles"],
    prefix: str = "",
    /,
    *,
    master: MasterFlag = LOCAL,
) -> None:
    """Print ids that begin with PREFIX, for the scripts of `croupier completion`.

    Args:
        kind: What to look for.
        prefix: What was typed.
    """
    for line in id_lines(master, kind, prefix):
        print(line)


def id_lines(target: Target, kind: str, prefix: str) -> list[str]:
    """Return the ids of a kind that begin with `prefix`, each with a tab and a description."""
    try:
        return asyncio.run(_asked(target, kind, prefix))
    except (CroupierError, TimeoutError, OSError):
        return []


async def _asked(target: Target, kind: str, prefix: str) -> list[str]:
    key, describe = KINDS[kind]
    async with asyncio.timeout(TIMEOUT_S), connected(target) as master:
        found = await first_page(master, kind, MOST, text=prefix)
    return [
        f"{each[key]}\t{re.sub(r'[^A-Za-z0-9._ -]', '', describe(each))}".rstrip()
        for each in sorted(found, key=lambda each: "state" in each and not is_live(each))
        if each[key].startswith(prefix) and _PLAIN.fullmatch(each[key])
    ]
