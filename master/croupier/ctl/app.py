"""The `croupier` command line, to which each module of `commands` and each plug-in adds its own.

Rules: users wait for its start: a command imports its own module alone, and `croupier --help` none.
A plug-in is an entry point of the group `croupier.commands` of another package. One that cannot be
loaded says so when it is called, and changes no other command.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from croupier.ctl import commands
from croupier.model.errors import Unavailable
from croupier.process.cli import make_app

GROUP: Final = "croupier.commands"
FILES: Final = "*.dist-info/entry_points.txt"

# By the name of a command and of the package that has it: `module:attribute`.
Plugins = dict[str, dict[str, str]]

# A task's environment names its ids by CROUPIER_..., which are not flags.
app = make_app(
    "croupier",
    "Inspect and operate a Croupier cluster; `croupier local` starts one on this machine.\n\n"
    "--master HOST:PORT[,...], before or after the command, names the masters; without it"
    " CROUPIER_MASTER in the environment, or else 127.0.0.1:5050. Credentials come from flags such"
    " as --token-file, from the environment, or from ~/.config/croupier/credentials/HOST:PORT.toml:"
    " croupier doctor checks them.\n\n"
    "Exit codes: 0 success; 1 the master refused, or no master can be reached; 2 wrong command"
    " line; 126 the agent cannot execute the program, 127 it does not find it (run, exec); 130"
    " Ctrl-C. For others see the help of run, exec, drain and service, and docs/cli.md.",
    reads_environment=False,
)

# The commands, with the line of each in `croupier --help`.
SUMMARIES: Final = {
    "access": "Show, explain and change who may do what in a cluster with authentication.",
    "agent": "Show, drain, deactivate and reactivate an agent, or declare it gone.",
    "agents": "List agents: state, tasks, and resources used, offered and in total.",
    "cert": (
        "Make, show and revoke certificates: a private authority, and certificates that it signs."
    ),
    "complete": "",
    "completion": (
        "Print a script that completes commands, flags, and ids of agents, frameworks and tasks."
    ),
    "cp": "Copy a file or a directory from the sandbox of a task.",
    "describe": ("Show the details of one object: state, resources, tasks, causes, recent events."),
    "doctor": "Check credentials, certificates, clocks, masters and agents from this machine.",
    "drain": "Kill the tasks of an agent and withhold it from offers, until it is reactivated.",
    "events": "Show what happened in the cluster: agents, frameworks, tasks, roles and masters.",
    "exec": "Run a command beside a task: croupier exec [-it] TASK -- CMD...",
    "files": "List the files in the sandbox of a task. `croupier cp` copies them.",
    "fit": "Count how many tasks of a shape could start now, and what would have to end for more.",
    "framework": "Tear a framework down. `croupier frameworks` lists them.",
    "frameworks": "List frameworks: state, share of the cluster, and demand.",
    "hold": "Hold resources of an agent for a role, or release a hold.",
    "holds": "List the resources of agents that are held for frameworks and roles.",
    "kill": "Kill a task.",
    "local": "Run a master and agents on this machine until Ctrl-C.",
    "logs": "Print the output of a task, also after its end, as long as its agent keeps it.",
    "masters": (
        "List the running masters: which one leads, its term, and the URL of each one's page."
    ),
    "offers": "List outstanding offers.",
    "page": "Print the address of the web page, and how to sign in to it.",
    "quota": "List or change the guarantees and limits of roles.",
    "replay": "Replay a master's event log: check its decisions, or compare other settings.",
    "reservations": "List the reservations of agents for roles.",
    "reserve": "Reserve agents for a role and the roles below it, from a certain time on.",
    "roles": "List roles as a tree: weights, shares, guarantees and limits.",
    "task": "Show a task. `croupier tasks` lists them.",
    "tasks": "List tasks that run or have ended recently.",
    "token": "Create, list and revoke tokens of clients, and join tokens of agents.",
    "top": (
        "Show the cluster live: resources, failed tasks, agents with problems, roles, frameworks."
    ),
    "unreserve": "Delete a reservation, with all its later occurrences.",
    "usage": "Show who used how much of the cluster in a time: this month, if none is given.",
    "volumes": "List the volumes of agents, and orphans: directories without a hold.",
    "weights": (
        "List or change the weights of roles: a role of weight 2 gets twice the share of one of 1."
    ),
    "why": "Explain why a framework gets no more offers, and what to do about it.",
}
# The modules of commands that do not have the name of their module.
_MODULES: Final = {
    **dict.fromkeys(
        (
            *("agents", "frameworks", "holds"),
            *("offers", "reservations", "roles", "tasks", "volumes"),
        ),
        "lists",
    ),
    **dict.fromkeys(("cp", "logs"), "files"),
    **dict.fromkeys(("quota", "weights"), "role_settings"),
    **dict.fromkeys(("describe", "kill"), "task"),
    "complete": "completion",
    "drain": "agent",
    "unreserve": "reserve",
    "why": "framework",
}


def family(name: str, more: str = "") -> App:
    """Add a command that has commands of its own; `more` follows its summary in `--help`."""
    made = make_app(name, f"{SUMMARIES[name]}\n\n{more}".strip(), reads_environment=False)
    app.command(made)
    return made


def load_commands(word: str = "") -> None:
    """Add the command or plug-in called `word` to `app`; all if there is none."""
    if word in SUMMARIES:
        _load(word)
        return
    plugins = installed()
    if word in plugins:
        add_plugins(app, {word: plugins[word]})
        for name in app[word]:
            with suppress(ImportError, AttributeError):  # which its call reports
                app[word][name]  # imports a lazy command, whose summary its help needs
        return
    for name in SUMMARIES:
        _load(name)
    add_plugins(app, plugins)


def load_summaries() -> None:
    """Add what `croupier --help` prints: commands with their summaries alone, and plug-ins."""
    for name, summary in SUMMARIES.items():
        if name not in app and summary:
            app.command(f"{__name__}:app", name=name, help=summary)
    add_plugins(app, installed())


def _load(name: str) -> None:
    """Import the module of a command, which adds its commands to `app`."""
    home = _MODULES.get(name, name)
    module = f"{commands.__name__}.{home}"
    if module in sys.modules:
        return
    for each in SUMMARIES:
        if _MODULES.get(each, each) == home and each in app:
            # Only its summary was added.
            del app[each]
    import_module(module)


def installed() -> Plugins:
    """Return the entry points of all packages; importlib.metadata would take a tenth of a start."""
    found: Plugins = defaultdict(dict)
    for file in (file for folder in sys.path for file in Path(folder).glob(FILES)):
        text = ""
        with suppress(OSError):
            text = file.read_text(errors="replace")
        section = text.partition(f"[{GROUP}]\n")[2].partition("\n[")[0]
        for line in section.splitlines():
            name, _, value = line.partition("=")
            if value:
                found[name.strip()].setdefault(file.parent.name.partition("-")[0], value.strip())
    return found


def add_plugins(app: App, plugins: Plugins) -> None:
    """Add commands to `app`; its own commands have precedence."""
    for name in sorted(plugins):
        if name not in app:
            app.command(_loaded(name, plugins[name]), name=name)


def _loaded(name: str, points: Mapping[str, str]) -> App | Callable[..., object]:
    """Return the command, or a stand-in that fails with the reason."""
    if len(points) > 1:
        packages = ", ".join(sorted(points))
        return _failing(f"several packages have a command {name}: {packages}; keep one of them")
    (point,) = points.values()
    module, _, attribute = point.partition(":")
    try:
        command = attrgetter(attribute)(import_module(module))
    except (Exception, SystemExit) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return _failing(f"the command {name} cannot be loaded from {point}: {what}")
    if isinstance(command, App) or callable(command):
        return command  # type: ignore[no-any-return]
    return _failing(f"the command {name}, {point}, is neither a function nor an App")


def _failing(why: str) -> Callable[..., object]:
    def fail(*_: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
        raise Unavailable(why)

    fail.__doc__ = f"Not available: {why}."
    return fail
