"""`croupier replay`, a command of the simulator, and its result as text or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import Parameter

from croupier.ctl.app import app
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.printable import printable_lines
from croupier.sim.replay.change import Change
from croupier.sim.replay.ledger import BUCKETS, Figures, Party, Waits, as_json
from croupier.sim.replay.result import Replayed, find
from croupier.sim.replay.workload import ASSUMPTIONS
from croupier.sim.report import print_columns, progress_bar


@app.command
def replay(
    log: Path,
    /,
    *,
    verify: Annotated[bool, Parameter(negative="")] = False,
    weights: Annotated[list[str] | None, Parameter(negative="")] = None,
    quota: Annotated[list[str] | None, Parameter(negative="")] = None,
    policy: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Replay a master's event log: check its decisions, or compare other settings.

    A master with --event-log writes the log. The core decides every event again, and must decide
    the same, byte for byte. The output shows shares over time, waits and utilization as recorded.
    With --weights, --quota or --policy the simulator runs the same work with the recorded and with
    the other settings, and the output shows the differences and the assumptions.

    Args:
        log: The path of --event-log for the master's last run; for an earlier run one of its older
            files, such as LOG.000001. All files of that run are read.
        verify: Only verify the decisions. It is an error if the beginning of the log is missing.
        weights: Other weights of roles, such as ads=2,web=0.5.
        quota: Another guarantee and limit of a role, such as
            'ads=guarantee:cpus:4;mem:8GB,limit:cpus:8'; `none` removes one. May be repeated.
        policy: Another allocation policy: drf, yarn-drf, fifo, asset, single-resource, slots or
            random.
        as_json: Print JSON for programs.
    """
    change = Change.parse(weights or (), quota or (), policy)
    if verify and change:
        raise InvalidRequest("--verify checks the recorded decisions: it takes no changes")
    try:
        with progress_bar() as progress:
            found = find(log, change, progress, verify=verify)
    except CroupierError as error:
        # The message may quote the log.
        raise type(error)(printable_lines(str(error))) from error
    (print_json if as_json else print_found)(found, sys.stdout)


# The most roles and frameworks in the text: those of the greatest shares.
_MOST_ROWS = 20
_NO_WAITS = Waits()
_TITLES = ("share", "tasks", "wait, s", "p95, s", "waiting")


def print_found(found: Replayed, out: TextIO) -> None:
    """Print the result as text."""
    for line in _preamble(found):
        print(printable_lines(line), file=out)
    names = {str(stay.framework_id): stay.name for stay in found.history.frameworks}
    if found.recorded is not None:
        print("\nas recorded", file=out)
        print_figures([found.recorded], names, out)
    if found.change is not None and found.before is not None and found.after is not None:
        print(printable_lines(f"\nif {found.change}: simulated, before -> after"), file=out)
        print_figures([found.before, found.after], names, out)
        print("\nestimates, on these assumptions:", file=out)
        for assumption in ASSUMPTIONS:
            print(f"- {assumption}", file=out)


def print_json(found: Replayed, out: TextIO) -> None:
    """Print the result as JSON."""
    head = found.history.head
    document: dict[str, Any] = {
        "master_id": head.master_id,
        "version": head.version,
        "policy": head.policy,
        "files": [str(path) for path in found.reader.paths],
        "has_beginning": found.reader.has_beginning,
        "events": found.history.events,
        "digest": found.digest,
        "notes": found.reader.notes,
    }
    for name, figures in (
        ("recorded", found.recorded),
        ("before", found.before),
        ("after", found.after),
    ):
        if figures is not None:
            document[name] = as_json(figures)
    if found.change is not None:
        document |= {"change": str(found.change), "assumptions": ASSUMPTIONS}
    print(json.dumps(document, indent=2), file=out)


def print_figures(runs: Sequence[Figures], names: Mapping[str, str], out: TextIO) -> None:
    """Print shares, waits and use of one run, or of two that differ; `names` are of frameworks."""
    for kind in ("role", "framework"):
        rows = []
        for each in _top_names(kind, *runs):
            cells = zip(*(_cells(run, (kind, each)) for run in runs), strict=True)
            rows.append(
                (_label(kind, each, names), *(" -> ".join(dict.fromkeys(pair)) for pair in cells))
            )
        print_columns((kind, *_TITLES), _whole(rows, runs[-1], kind), out)
        print(file=out)
    if len(runs) == 1:
        _print_over_time(runs[0], out)
    used = sorted({name for run in runs for name in run.parties("use")})
    print(f"used: {' -> '.join(_used(run.shares, used) for run in runs)}", file=out)


def _preamble(found: Replayed) -> Iterator[str]:
    reader, history = found.reader, found.history
    head, seconds = history.head, history.end - history.start
    began = _moment(head.wall_ms)
    yield (
        f"master {head.master_id}, version {head.version}, policy {head.policy}:"
        f" {history.events} events in {seconds:.1f} s from {began}"
    )
    yield f"files {', '.join(path.name for path in reader.paths)}"
    if reader.other_runs:
        yield (
            f"{reader.other_runs} other runs of the master are in this log;"
            " name one of their files to replay that"
        )
    yield from reader.notes
    if found.digest is not None:
        yield f"decisions: the same, byte for byte, in all {history.events} events"
        yield f"digest {found.digest}"
    else:
        yield (
            f"decisions: not verified: the log has no beginning,"
            f" its oldest file is part {head.part}"
        )


def _moment(wall_ms: int) -> str:
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "no known time"


def _print_over_time(figures: Figures, out: TextIO) -> None:
    """Print the shares of roles in columns, over equal parts of the time."""
    names = _top_names("role", figures)[:8]
    width = (figures.end - figures.start) / BUCKETS
    rows = [
        (
            f"{part * width:.1f}",
            *(_percent(figures.over_time.get(("role", name), _NONE)[part]) for name in names),
        )
        for part in range(BUCKETS)
    ]
    print_columns(("from, s", *map(printable_lines, names)), rows, out)
    print(file=out)


def _top_names(kind: str, *all_figures: Figures) -> list[str]:
    """Return the names of a kind; if there are many, those of the greatest shares."""
    names = sorted({name for figures in all_figures for name in figures.parties(kind)})
    if len(names) <= _MOST_ROWS:
        return names
    shares = {
        name: max(figures.shares.get((kind, name), 0.0) for figures in all_figures)
        for name in names
    }
    return sorted(names, key=lambda name: (-shares[name], name))[:_MOST_ROWS]


def _label(kind: str, name: str, names: Mapping[str, str]) -> str:
    text = f"{name} {names.get(name, '')[:40]}" if kind == "framework" else name
    return printable_lines(text.strip())


def _whole(
    rows: Sequence[tuple[str, ...]], figures: Figures, kind: str
) -> Iterable[tuple[str, ...]]:
    more = len(figures.parties(kind)) - len(rows)
    return rows if more <= 0 else [*rows, (f"and {more} more", *[""] * 5)]


def _cells(figures: Figures, party: Party) -> tuple[str, ...]:
    share, waits = figures.shares.get(party, 0.0), figures.waits.get(party, _NO_WAITS)
    times = (_seconds(waits.mean), _seconds(waits.p95))
    return _percent(share), str(waits.tasks), *times, str(waits.waiting)


def _percent(part: float) -> str:
    return f"{part:.1%}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"


def _used(shares: Mapping[Party, float], names: Iterable[str]) -> str:
    used = [f"{name} {_percent(shares.get(('use', name), 0.0))}" for name in names]
    return ", ".join(used) or "nothing"


_NONE = (0.0,) * BUCKETS
