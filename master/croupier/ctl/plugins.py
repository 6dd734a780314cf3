"""Commands of other packages: entry points of the group `croupier.commands`.

Rule: a command that cannot be loaded says so when it is called, and changes no other command.
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

from croupier.model.errors import Unavailable

GROUP: Final = "croupier.commands"
FILES: Final = "*.dist-info/entry_points.txt"

# By the name of a command and of the package that has it: `module:attribute`.
Plugins = dict[str, dict[str, str]]


def installed() -> Plugins:
    """Return the entry points of all installed packages.

    importlib.metadata finds them too, but its import alone would take a tenth of a start.
    """
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
