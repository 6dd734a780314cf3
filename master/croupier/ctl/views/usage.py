"""Usage over time, as commands show it: resources times hours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from croupier.cli.table import Column, Table
from croupier.cli.terminal import View
from croupier.ctl.views.role import branch
from croupier.model.csv_cell import csv_cell
from croupier.model.durations import duration_text
from croupier.model.resources import in_order
from croupier.model.scalar import SIZED

_HOUR_S: Final = 3600.0
_COLUMNS: Final = ("used", "held", "offered", "asked", "measured", "wasted")
_NO_NAME: Final = "(none)"


def hours(name: str, unit_seconds: float) -> float:
    """Return an amount times hours; of memory and disk in GB."""
    return unit_seconds / _HOUR_S / (1024 if name in SIZED else 1)


def usage_table(view: View, by: str) -> Table:
    """Return the table of an answer: a column for each resource."""

    def name_of(each: View) -> str:
        return str(each["name"]) or _NO_NAME

    columns = [
        Column(
            by.upper(),
            name_of,
            draw=(lambda each: branch(name_of(each))) if by == "role" else None,
            is_id=True,
        ),
        Column("SHARE", lambda each: f"{100 * each['share']:.1f}%", is_number=True),
        Column("SHARE-H", lambda each: f"{each['share_s'] / _HOUR_S:.2f}", is_number=True, rank=1),
    ]
    columns += [_used(name) for name in _resources(view, "used")]
    columns.append(Column("WASTED", _wasted, rank=2, is_optional=True))
    columns += [_text(column) for column in _COLUMNS[1:]]
    return Table(tuple(columns), "nothing was used in this time").trimmed(view["usage"])


def _used(name: str) -> Column:
    unit = "GBH" if name in SIZED else "H"

    def show(each: View) -> str:
        return f"{hours(name, each['used'].get(name, 0.0)):.2f}"

    return Column(f"{name.upper()}-{unit}", show, is_number=True, rank=2)


def _wasted(each: View) -> str:
    """Return the part of what measured tasks asked for that they wasted: `cpus:88%;mem:20%`."""
    asked, wasted = each["asked"], each["wasted"]
    parts = [name for name in in_order(asked) if asked[name]]
    return ";".join(f"{name}:{100 * wasted.get(name, 0.0) / asked[name]:.0f}%" for name in parts)


def _text(column: str) -> Column:
    """Return an optional column of amounts, such as `cpus:1.50;mem:2.00GB`."""

    def show(each: View) -> str:
        parts = each[column]
        return ";".join(
            f"{name}:{hours(name, parts[name]):.2f}{'GB' if name in SIZED else ''}"
            for name in in_order(parts)
        )

    return Column(f"{column.upper()}-H", show, rank=3, is_optional=True)


def csv_rows(view: View, by: str) -> Iterator[list[object]]:
    """Yield the titles and the lines of CSV; what was not measured is empty."""
    places = [(column, name) for column in _COLUMNS for name in _resources(view, column)]
    titles = [f"{column}_{name}{'_gb' if name in SIZED else ''}_hours" for column, name in places]
    yield [by, "share", "share_hours", *titles]
    for each in view["usage"]:
        shown = _COLUMNS if each["measured"] else _COLUMNS[:3]
        amounts = [
            f"{hours(name, each[column].get(name, 0.0)):.6f}" if column in shown else ""
            for column, name in places
        ]
        share, share_h = f"{each['share']:.6f}", f"{each['share_s'] / _HOUR_S:.6f}"
        yield [csv_cell(each["name"]), share, share_h, *amounts]


def headline(view: View) -> str:
    """Return the time that was counted, and the capacity of the cluster in it."""
    if not view["counted_s"]:
        return "no usage was counted in this time"
    begin, end = (_time(view[key]) for key in ("since_ms", "ended_ms"))
    capacity = ", ".join(
        f"{name} {hours(name, view['capacity'][name]):.2f}{' GB' if name in SIZED else ''}"
        for name in in_order(view["capacity"])
    )
    of = f" of a cluster with {capacity} (times hours)" if capacity else ""
    return f"{begin} to {end} UTC: counted for {duration_text(view['counted_s'])}{of}"


def _resources(view: View, column: str) -> list[str]:
    return in_order({name for each in view["usage"] for name in each[column]})


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M}"
