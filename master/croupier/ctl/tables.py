"""Lists for people: a table that fits on a terminal, plain columns in a pipe.

Rule: in a pipe nothing is cut or folded, so that ids can be copied and columns cut out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from croupier.ctl.agent_text import state_words
from croupier.ctl.framework_text import framework_state_words
from croupier.ctl.views import View
from croupier.model.printable import printable
from croupier.model.task import Reason


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, and what it shows of an object.

    Attributes:
        draw: what it shows on a terminal, if that differs.
        is_id: whether it is never cut.
        rank: on a narrow terminal columns of the highest rank are left out first; 0 stays.
    """

    title: str
    show: Callable[[View], str]
    is_number: bool = False
    draw: Callable[[View], str] | None = None
    is_id: bool = False
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """How objects of one kind are shown; `empty` is said when there are none."""

    columns: tuple[Column, ...]
    empty: str


def _id(title: str, key: str, rank: int = 0) -> Column:
    return Column(title, lambda view: str(view[key]), is_id=True, rank=rank)


def _key(title: str, key: str, rank: int = 0) -> Column:
    return Column(title, lambda view: str(view[key]), rank=rank)


def _number(title: str, key: str, rank: int = 0) -> Column:
    return Column(title, lambda view: str(view[key]), is_number=True, rank=rank)


def _amount(title: str, key: str, rank: int = 0) -> Column:
    return Column(title, lambda view: view[key]["text"] or "-", rank=rank)


_SHARE = Column("SHARE", lambda view: f"{view['share']:.3f}", is_number=True)
_ENTITLED = Column("ENTITLED", lambda view: f"{view['entitlement']:.3f}", is_number=True)
_ROLE = Column(
    "ROLE", lambda view: str(view["role"]), draw=lambda view: _branch(view["role"]), is_id=True
)
_WEIGHT = Column("WEIGHT", lambda view: f"{view['weight']:g}", is_number=True)

AGENTS = Table(
    (
        _id("AGENT", "agent_id"),
        _key("HOST", "hostname"),
        Column("STATE", state_words),
        _number("TASKS", "tasks"),
        _amount("USED", "used", 1),
        _amount("OFFERED", "offered", 3),
        _amount("TOTAL", "total", 2),
        Column("ATTRIBUTES", lambda view: _pairs(view["attributes"]), rank=4),
    ),
    "no agents are registered",
)
FRAMEWORKS = Table(
    (
        _id("FRAMEWORK", "framework_id"),
        _key("NAME", "name"),
        Column("ROLE", lambda view: ",".join(view["roles"]), rank=1),
        Column("STATE", framework_state_words),
        _SHARE,
        _number("TASKS", "tasks"),
        _number("OFFERS", "offers", 4),
        _amount("USED", "used", 2),
        _amount("OFFERED", "offered", 5),
        Column(
            "WANTS",
            lambda view: ", ".join(map(wish_text, view["demands"])) or "whole offers",
            rank=3,
        ),
    ),
    "no frameworks are registered",
)
ROLES = Table(
    (
        _ROLE,
        _WEIGHT,
        _SHARE,
        _ENTITLED,
        _amount("GUARANTEE", "guarantee", 2),
        _amount("LIMIT", "limit", 3),
        _number("FRAMEWORKS", "frameworks", 4),
        _number("TASKS", "tasks"),
        _amount("USED", "used", 1),
        _amount("OFFERED", "offered", 5),
    ),
    "no roles have frameworks or settings",
)
WEIGHTS = Table(
    (
        _ROLE,
        _WEIGHT,
        Column("RESOURCES", lambda view: resource_weights_text(view["resource_weights"])),
        _SHARE,
        _ENTITLED,
    ),
    "no roles have frameworks or settings",
)
QUOTAS = Table(
    (
        _ROLE,
        _amount("GUARANTEE", "guarantee"),
        _amount("LIMIT", "limit"),
        Column("PREEMPTION", lambda view: preemption_text(view["preemption"])),
        _amount("USED", "used", 1),
        _amount("OFFERED", "offered", 2),
    ),
    "no role has a guarantee, a limit or a preemption setting",
)
OFFERS = Table(
    (
        _id("OFFER", "offer_id"),
        _id("FRAMEWORK", "framework_id", 2),
        _id("AGENT", "agent_id", 1),
        _key("ROLE", "role", 3),
        Column("LEASE", lambda view: f"{view['lease_s']:g}s", is_number=True),
        _amount("RESOURCES", "resources"),
    ),
    "no offers are outstanding",
)
TASKS = Table(
    (
        _id("TASK", "task_id"),
        _key("NAME", "name", 3),
        _id("FRAMEWORK", "framework_id", 1),
        _id("AGENT", "agent_id", 2),
        _key("ROLE", "role", 4),
        _key("STATE", "state"),
        Column("CODE", lambda view: _ending(view), is_number=True),
        Column("WHY", lambda view: _why(view)),
        _amount("RESOURCES", "resources", 5),
    ),
    "no tasks are running or have ended lately",
)
TASKS_WITH_COMMANDS = Table(
    (
        *TASKS.columns,
        Column("COMMAND", lambda view: view["shell"] or " ".join(view["command"] or ()), rank=1),
    ),
    TASKS.empty,
)


def print_table(
    table: Table, views: Sequence[View], out: TextIO, *, with_titles: bool = True
) -> None:
    """Write `views` to `out`, for a terminal if that is one; without titles as a further part."""
    if not views:
        print(table.empty, file=out)
    elif out.isatty():
        _print_drawn(table, views, out, with_titles)
    else:
        for line in plain_lines(table, views)[not with_titles :]:
            print(line, file=out)


def plain_lines(table: Table, views: Sequence[View]) -> list[str]:
    """A line of titles and one per object, in aligned columns two spaces apart."""
    rows = [[column.title for column in table.columns]]
    rows += [[_cell(column, view) for column in table.columns] for view in views]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(table, row, widths)).rstrip() for row in rows]


def _aligned(table: Table, row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if column.is_number else text.ljust(width)
        for column, text, width in zip(table.columns, row, widths, strict=True)
    ]


def _print_drawn(table: Table, views: Sequence[View], out: TextIO, with_titles: bool) -> None:
    from croupier.ctl.drawing import Drawn, drawn_lines

    columns = [
        Drawn(
            column.title,
            [_cell(column, view, drawn=True) for view in views],
            column.is_number,
            column.is_id,
            column.rank,
        )
        for column in table.columns
    ]
    titles, *lines = drawn_lines(columns, shutil.get_terminal_size().columns)
    if with_titles:
        print(f"\x1b[1m{titles}\x1b[0m" if _takes_colour() else titles, file=out)
    for line in lines:
        print(line, file=out)


def _takes_colour() -> bool:
    return "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


def resource_weights_text(weights: Mapping[str, float]) -> str:
    """Such as `cpus=2,gpus=0.5`."""
    return ",".join(f"{name}={weight:g}" for name, weight in weights.items())


def preemption_text(preemption: bool | None) -> str:
    """`on`, `off`, or nothing where it is as the parent's."""
    return "" if preemption is None else "on" if preemption else "off"


def _branch(role: str) -> str:
    """The last component of a role, as far to the right as it is deep."""
    above, _, last = role.rpartition("/")
    return "  " * (above.count("/") + 1) + last if above else last


def _cell(column: Column, view: View, *, drawn: bool = False) -> str:
    """The text of one cell. What a terminal would obey is spelled out."""
    show = column.draw if drawn and column.draw is not None else column.show
    return printable(show(view) or "-")


def _pairs(attributes: dict[str, str]) -> str:
    return ";".join(f"{name}:{value}" for name, value in attributes.items())


def wish_text(demand: View) -> str:
    """What a framework wants, such as `3 <cpus:1>`."""
    count = "any number of" if demand["count"] is None else demand["count"]
    least, most = demand["min_per_offer"], demand["max_per_offer"]
    portions = "" if (least, most) == (1, None) else f" {least} to {most or 'any'} at once"
    place = f" in {demand['role']}" if demand["role"] else ""
    tests = "".join(f" {constraint}" for constraint in demand["constraints"])
    return f"{count} <{demand['unit']['text']}>{portions}{place}{tests}"


def _why(view: View) -> str:
    """The reason, where neither the state nor an exit code is one."""
    plain = (Reason.NONE.name, Reason.COMMAND_EXECUTOR_FAILED.name, view["state"])
    return "" if view["reason"] in plain else str(view["reason"])


def _ending(view: View) -> str:
    """The exit code, or -N if signal N ended the task."""
    if view["signal"] is not None:
        return str(-view["signal"])
    return "" if view["exit_code"] is None else str(view["exit_code"])
