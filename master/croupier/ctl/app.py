"""The `croupier` command line, to which each module of `commands` adds its own.

Rule: a command imports what it needs within it, so that `--help` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from cyclopts import App

from croupier.ctl import commands
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
# Words that lead to commands of their own, such as `weights` and `token create`.
families: set[str] = set()
# Commands that are all of their modules.
ALONE: Final = frozenset({"complete", "exec", "local", "run"})


def family(name: str, text: str, within: App | None = None) -> App:
    """Add a command that has commands of its own, to `app` or to another family."""
    families.add(name if within is None else f"{within.name[0]} {name}")
    made = make_app(name, text, reads_environment=False)
    (within or app).command(made)
    return made


def load_commands(word: str = "") -> None:
    """Import every module of `commands`; each adds its commands to `app`.

    If `word` is a command whose start users wait for, import only its module.
    """
    names = [word] if word in ALONE else [each.name for each in iter_modules(commands.__path__)]
    for name in names:
        import_module(f"{commands.__name__}.{name}")
