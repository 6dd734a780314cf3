"""The `croupier` command line, to which each module of `commands` and each plug-in adds its own.

Rule: a command imports what it needs within it, so that `--help` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

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
# Commands that are loaded alone, as users wait for their start. Each is all of its module.
ALONE: Final = frozenset({"complete", "exec", "local", "run"})


def family(name: str, text: str, within: App | None = None) -> App:
    """Add a command that has commands of its own, to `app` or to another family."""
    made = make_app(name, text, reads_environment=False)
    (within or app).command(made)
    return made


def load_commands(word: str = "") -> None:
    """Add the commands of every module of `commands`, and the plug-ins, to `app`.

    If `word` is one of them, other plug-ins are not loaded.
    """
    names = [each.name for each in iter_modules(commands.__path__)]
    for name in {word}.intersection(names) if word in ALONE else names:
        import_module(f"{commands.__name__}.{name}")
    if word.startswith("-") or word not in app:
        plugins = installed()
        add_plugins(app, {word: plugins[word]} if word in plugins else plugins)
