"""Steps of commands that change the cluster: preview, confirm, call, print.

Rule: before a change that cannot be undone, the command shows the consequences and asks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from croupier.cli.connection import Master, run
from croupier.cli.flags import Change, Target
from croupier.cli.table import Table, print_table
from croupier.cli.terminal import View, print_lines
from croupier.model.errors import Conflict, InvalidRequest

# Before the lines of a dry run.
UNCHANGED: Final = "nothing was changed; this would change:"


@dataclass(frozen=True, slots=True)
class Preview:
    """The consequences of an operation on one object, for programs and for people."""

    object_id: str
    view: View
    lines: Sequence[str]


MakePreview = Callable[[Master], Coroutine[Any, Any, Preview]]


def ask(target: Target, method: str, request: Message) -> Any:
    """Make one call, and return its response; raises as `run`."""
    return run(target, lambda master: master.ask(getattr(master.service, method), request))


def print_result(view: View, *lines: str, as_json: bool) -> None:
    """Print `view` as JSON, or `lines`."""
    if as_json:
        print(json.dumps(view, indent=2))
    else:
        print_lines(*lines)


def print_objects(
    table: Table, views: Sequence[View], *, as_json: bool, wide: bool = False
) -> None:
    """Print a list as JSON, or as a table."""
    if as_json:
        print(json.dumps(views, indent=2))
    else:
        print_table(table, views, sys.stdout, wide=wide)


def print_preview(target: Target, preview: MakePreview, *, as_json: bool) -> Preview:
    """Print the consequences of an operation, and return them.

    Raises:
        CroupierError: if the object is not found, or no master can be reached.
    """
    found = run(target, preview)
    print_result({"dry_run": True, **found.view}, *found.lines, as_json=as_json)
    return found


def confirm(named: str, preview: MakePreview, change: Change, *, yes: bool) -> str | None:
    """Return the name or id of the object to operate on; None after a dry run.

    Without `yes`, print the consequences and ask.

    Raises:
        Conflict: if the answer is no.
        InvalidRequest: if standard input is not a terminal.
        CroupierError: if the object is not found, or no master can be reached.
    """
    if change.dry_run:
        print_preview(change.master, preview, as_json=change.as_json)
        return None
    if yes:
        return named
    found = print_preview(change.master, preview, as_json=False)
    if not sys.stdin.isatty():
        raise InvalidRequest("cannot ask for confirmation: stdin is not a terminal; give --yes")
    print("type yes to continue: ", end="", flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise Conflict("nothing was changed")
    # The user has confirmed this object, not the one that has its name by now.
    return found.object_id
