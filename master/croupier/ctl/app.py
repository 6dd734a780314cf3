"""The `croupier` command line, to which each module of `commands` and each plug-in adds its own.

Rule: users wait for its start. A command imports its own module alone, and `croupier --help` none.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final, NamedTuple

from cyclopts import App

from croupier.ctl import commands
from croupier.ctl.plugins import add_plugins, installed
from croupier.process.cli import make_app

# A task's environment names its ids by CROUPIER_..., which are not flags.
app = make_app(
    "croupier",
    "Inspect and operate a Croupier cluster; `croupier local` starts one on this machine.\n\n"
    "--master HOST:PORT[,...], before or after the command, names the masters; without it"
    " CROUPIER_MASTER in the environment, or else 127.0.0.1:5050. Credentials come from flags such"
    " as --token-file, from the environment, or from ~/.config/croupier/credentials/HOST:PORT.toml:"
    " croupier doctor checks them.\n\n"
    "Exit codes: 0 done; 1 the master refused, or no master can be reached; 2 wrong command line;"
    " 126 and 127 run, exec: the program cannot be executed, or is not found on the agent; 130"
    " Ctrl-C; others: see run, exec, drain, service --help, and docs/cli.md.",
    reads_environment=False,
)


class Command(NamedTuple):
    """A command of `croupier`: its module in `commands`, and its line in `croupier --help`."""

    module: str
    summary: str


COMMANDS: Final = {
    "access": Command(
        "access", "Show, explain and change who may do what in a cluster with authentication."
    ),
    "agent": Command(
        "agent", "Show, drain, deactivate and reactivate an agent, or declare it gone."
    ),
    "agents": Command(
        "lists", "List agents: state, tasks, and resources used, offered and in total."
    ),
    "cert": Command(
        "cert",
        "Make, show and revoke certificates: a private authority, and certificates that it signs.",
    ),
    "complete": Command("complete", ""),
    "completion": Command(
        "completion",
        "Print a script that completes commands, flags, and ids of agents, frameworks and tasks.",
    ),
    "cp": Command("files", "Copy a file or a directory from the sandbox of a task."),
    "describe": Command(
        "task",
        "Show all that is known about one object: state, amounts, tasks, causes, recent events.",
    ),
    "doctor": Command(
        "doctor", "Check credentials, certificates, clocks, masters and agents from this machine."
    ),
    "drain": Command(
        "agent",
        "Kill the tasks of an agent and withhold it from offers, until it is reactivated.",
    ),
    "events": Command(
        "events",
        "Show what happened in the cluster: agents, frameworks, tasks, roles and masters.",
    ),
    "exec": Command("exec", "Run a command beside a task: croupier exec [-it] TASK -- CMD..."),
    "files": Command(
        "files", "List the files in the sandbox of a task. `croupier cp` copies them."
    ),
    "framework": Command("framework", "Tear a framework down. `croupier frameworks` lists them."),
    "frameworks": Command("lists", "List frameworks: state, share of the cluster, and demand."),
    "kill": Command("kill", "Kill a task."),
    "local": Command("local", "Run a master and agents on this machine until Ctrl-C."),
    "logs": Command(
        "files",
        "Print the output of a task, as long as its agent keeps it, also after its end.",
    ),
    "masters": Command(
        "masters",
        "List the running masters: which one leads, its term, and the URL of each one's page.",
    ),
    "offers": Command("lists", "List outstanding offers."),
    "page": Command("page", "Print the address of the web page, and how to sign in to it."),
    "quota": Command("roles", "List or change the guarantees and limits of roles."),
    "replay": Command(
        "replay", "Replay a master's event log: check its decisions, or compare other settings."
    ),
    "roles": Command("lists", "List roles as a tree: weights, shares, guarantees and limits."),
    "task": Command("task", "Show a task. `croupier tasks` lists them."),
    "tasks": Command("lists", "List tasks that run or have ended recently."),
    "token": Command(
        "token", "Create, list and revoke tokens of clients, and join tokens of agents."
    ),
    "top": Command(
        "top",
        "Show the cluster live: resources, failed tasks, agents with problems, roles, frameworks.",
    ),
    "weights": Command(
        "roles",
        "List or change the weights of roles: a role of weight 2 gets twice the share of one of 1.",
    ),
    "why": Command("why", "Explain why a framework gets no more offers, and what to do about it."),
}


def family(name: str, more: str = "") -> App:
    """Add a command that has commands of its own; `more` follows its summary in `--help`."""
    made = make_app(name, f"{COMMANDS[name].summary}\n\n{more}".strip(), reads_environment=False)
    app.command(made)
    return made


def load_commands(word: str | None = None) -> None:
    """Add commands and plug-ins to `app`: the one called `word`; all if it is None.

    If `word` is no command, all commands have only the summary that `croupier --help` prints.
    """
    if word is None:
        for name in COMMANDS:
            _load(name)
    elif word in COMMANDS:
        _load(word)
        return
    plugins = installed()
    if word in plugins:
        add_plugins(app, {word: plugins[word]})
        return
    for name, command in COMMANDS.items():
        if name not in app and command.summary:
            app.command(f"{__name__}:app", name=name, help=command.summary)
    add_plugins(app, plugins)


def _load(name: str) -> None:
    """Import the module of a command, which adds its commands to `app`."""
    module = f"{commands.__name__}.{COMMANDS[name].module}"
    if module in sys.modules:
        return
    for each, command in COMMANDS.items():
        if command.module == COMMANDS[name].module and each in app:
            # Only its summary was added.
            del app[each]
    import_module(module)
