"""Command lines: typed flags, and one line for an error.

Exit codes: 2 for an invalid command line, 1 for every other CroupierError.

A flag overrides `CROUPIER_<FLAG>` in the environment, which overrides the TOML file that
`CROUPIER_CONFIG` names. A misspelled variable is refused, as a key in TOML is.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeVar

from cyclopts import App, CycloptsError, Parameter, Token
from cyclopts.config import Env, Toml

from croupier.model.durations import parse_duration
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.printable import printable
from croupier.net.version import version_line
from croupier.process.flag_variables import FLAG_VARIABLES
from croupier.process.garbage import YOUNG

PREFIX: Final = "CROUPIER_"
# Variables that are read, and that belong to no flag of a daemon.
_OTHERS: Final = frozenset(
    {"CROUPIER_CONFIG", "CROUPIER_TOKEN", "CROUPIER_TOKEN_FILE", "CROUPIER_PARENT"}
)
# Kubernetes sets these for each service, such as CROUPIER_PORT_5050_TCP_ADDR for `croupier`.
_SERVICE_LINK: Final = re.compile(
    r"CROUPIER(_.+)?_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse unknown variables; in a task none, since agents and users set more of them there.

    Variables of other programs are no error: programs of one machine may share an environment.
    Raises InvalidRequest if there is one, with the nearest known name.
    """
    if "CROUPIER_TASK_ID" in environment:
        return
    known = FLAG_VARIABLES | _OTHERS
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name):
            near = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
            advice = f": did you mean {near[0]}?" if near else "; unset it"
            raise InvalidRequest(f"unknown variable {name}{advice}")


USAGE_ERROR = 2

ConfigT = TypeVar("ConfigT")


def make_app(name: str, text: str, *, reads_environment: bool = True) -> App:
    """Return a command line without commands; `text` opens its `--help`.

    Without `reads_environment` only flags that name their variable read the environment.
    """
    # Imports leave no garbage, and to look for it took a tenth of a start.
    gc.set_threshold(YOUNG)
    sources = _sources(name, reads_environment=reads_environment)
    return App(
        name=name,
        help=text,
        version=version_line,
        config=sources,
        default_parameter=Parameter(show_default=_default_text),
    )


def _default_text(default: object) -> str | None:
    """Return a default for `--help`; None if it is empty, since the option is then just not given.

    0 is no empty default.
    """
    if default is None or default is False or default in ("", ()):
        return None
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def add_command(app: App, command: Callable[..., object]) -> None:
    """Add a command to a daemon's command line.

    It reads the daemon's variables and section of the TOML file, and ignores settings there that
    only the daemon has.
    """
    own = App(
        name=command.__name__,
        config=_sources(app.name[0], may_have_others=True),
        default_parameter=app.default_parameter,
    )
    own.default(command)
    app.command(own)


def _sources(
    name: str, *, reads_environment: bool = True, may_have_others: bool = False
) -> list[Any]:
    """Return where values are read that no flag gives."""
    sources: list[Any] = [Env(PREFIX, command=False)] if reads_environment else []
    path = os.environ.get("CROUPIER_CONFIG")
    if path:
        sources.append(
            Toml(
                path,
                must_exist=True,
                root_keys=[name],
                use_commands_as_keys=False,
                allow_unknown=may_have_others,
            )
        )
    return sources


def run_app(app: App, argv: Sequence[str] | None = None) -> int:
    """Run the command of `argv` (the process's own if None) and return the exit code."""
    name = app.name[0]
    try:
        check_variables(os.environ)
        result = app(
            sys.argv[1:] if argv is None else list(argv),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        command = " ".join((name, *_subcommand(error.command_chain or (), name)))
        tell_error(name, f"{_one_line(error)} (see {command} --help)")
        return USAGE_ERROR
    except (InvalidRequest, FileNotFoundError) as error:
        tell_error(name, _one_line(error))
        return USAGE_ERROR
    except CroupierError as error:
        tell_error(name, printable(str(error)))
        return 1
    return result if isinstance(result, int) else 0


def config_reader(make: Callable[[], App], default: Callable[[], ConfigT]) -> Callable[[], ConfigT]:
    """Return a function that reads the configuration of this process's command line again.

    It raises InvalidRequest if that is not valid. `make` returns the command line, and `default`
    what it is without any setting.
    """

    def read() -> ConfigT:
        try:
            _, bound, _ = make().parse_args(sys.argv[1:], exit_on_error=False, print_error=False)
        except (CycloptsError, FileNotFoundError) as error:
            raise InvalidRequest(_one_line(error)) from None
        return bound.arguments.get("config") or default()

    return read


def tell_error(name: str, line: str) -> None:
    """Print why the program ends; its exit code tells that too, if stderr takes nothing."""
    with suppress(OSError):
        print(f"{name}: {line}", file=sys.stderr)


def _one_line(error: Exception) -> str:
    """Return the error's text on one line, with unprintable characters escaped."""
    return printable(" ".join(str(error).split()))


def _subcommand(chain: Sequence[str], name: str) -> Sequence[str]:
    """Return `chain` without the program's name."""
    return chain[1:] if list(chain[:1]) == [name] else chain


def read_by(parse: Callable[[str], object], **more: Any) -> Parameter:
    """Return a parameter whose text `parse` converts; `more` goes to `Parameter`."""

    def convert(_: Any, tokens: Sequence[Token]) -> object:
        try:
            return parse(tokens[0].value)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

    return Parameter(converter=convert, n_tokens=1, accepts_keys=False, negative="", **more)


Seconds = Annotated[float, read_by(parse_duration)]
"""A flag for a duration: `30s`, `10m`, or a number of seconds."""
