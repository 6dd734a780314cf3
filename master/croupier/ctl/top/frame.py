"""One frame of `croupier top`, as lines. Pure.

Rule: no line is wider than the terminal, and nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal

from croupier.cli.connection import ALL_AGENTS, EVERY_ROLE, TOTALS, restricted
from croupier.cli.table import Column, Table, amount, cut, lines_of, number, text_width
from croupier.cli.terminal import View, running
from croupier.ctl.top.snapshot import Page, Snapshot
from croupier.ctl.views import agent as agents
from croupier.ctl.views import framework as frameworks
from croupier.ctl.views import task as tasks
from croupier.ctl.views.role import branch
from croupier.model.printable import printable
from croupier.model.scalar import format_scalar

# Bars of resources that are shown; the first ones in this order, then by name.
MOST_BARS: Final = 6
_FIRST: Final = ("cpus", "mem", "disk", "gpus")
# Rows of a table where the height of the terminal does not matter.
MOST_ROWS: Final = 20
_LABEL: Final = 6
_NARROW: Final = 60

Order = Literal["share", "tasks", "offers", "name"]
# The orders of frameworks, in the order in which a key changes them.
ORDERS: Final[Mapping[Order, Callable[[View], tuple[object, ...]]]] = {
    "share": lambda view: (-view["share_ppm"], -view["tasks"], view["framework_id"]),
    "tasks": lambda view: (-view["tasks"], -view["share_ppm"], view["framework_id"]),
    "offers": lambda view: (-view["offers"], -view["share_ppm"], view["framework_id"]),
    "name": lambda view: (view["name"].lower(), view["framework_id"]),
}


@dataclass(frozen=True, slots=True)
class Display:
    """The user's choice of what a frame shows.

    Attributes:
        filter: only roles, frameworks and agents with this text.
        is_typing: whether the filter is being typed.
        problem: why the frame is old; empty: it is not.
    """

    order: Order = "share"
    filter: str = ""
    is_typing: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The terminal; `height` None is unlimited."""

    width: int
    height: int | None = None
    has_colours: bool = False
    is_ascii: bool = False

    def style(self, line: str, code: str) -> str:
        """Return `line` in a style, if the terminal has any."""
        return f"\x1b[{code}m{line}\x1b[0m" if self.has_colours and line else line


_ROLES: Final = Table(
    (
        Column("ROLE", lambda view: branch(view["role"])),
        number("SHARE", "share", form=".3f"),
        number("ENTITLED", "entitlement", 2, form=".3f"),
        number("WEIGHT", "weight", 4, form="g"),
        Column("RUNNING", lambda view: str(running(view)), is_number=True, rank=1),
        number("QUEUED", "queued", 1),
        amount("USED", "used", 3),
        amount("GUARANTEE", "guarantee", 5),
        amount("LIMIT", "limit", 6),
    ),
    "no roles have frameworks or settings",
)


def _picked(table: Table, titles: str, empty: str) -> Table:
    """Return a table of the columns with these titles, in this order."""
    columns = {each.title: each for each in table.columns}
    return Table(tuple(columns[title] for title in titles.split()), empty)


_FRAMEWORKS: Final = _picked(
    frameworks.FRAMEWORKS,
    "NAME FRAMEWORK SHARE RUNNING QUEUED STATE ROLE USED OFFERS",
    frameworks.FRAMEWORKS.empty,
)
_AGENTS: Final = _picked(agents.AGENTS, "HOST STATE AGENT TASKS CONNECTED", "no agent has problems")


def frame(found: Snapshot, display: Display, terminal: Terminal) -> list[str]:
    """Return the lines of a frame; at most `terminal.height`."""
    head = [*_head_lines(found, display, terminal), *_bars(found, terminal), ""]
    roles, frameworks, troubled = _ROLES, _FRAMEWORKS, _AGENTS
    if EVERY_ROLE in found.hidden:
        roles, frameworks = (
            replace(each, empty=restricted(each.empty)) for each in (roles, frameworks)
        )
    if ALL_AGENTS in found.hidden:
        troubled = replace(troubled, empty="no agents that you may view have problems")
    sections = [
        _section(
            "roles", roles, found.roles, display, terminal, lambda view: (view["role"],), None
        ),
        _section(
            f"frameworks by {display.order}",
            frameworks,
            found.frameworks,
            display,
            terminal,
            lambda view: (view["framework_id"], view["name"], *view["roles"]),
            ORDERS[display.order],
        ),
    ]
    hint = "" if terminal.width < _NARROW else " (croupier logs --stderr TASK)"
    # What needs a look comes first; that nothing does comes last.
    for title, table, page, texts in (
        ("agents with problems", troubled, found.agents, _agent_texts),
        (f"failed tasks{hint}", tasks.FAILURES, found.failures, _task_texts),
    ):
        section = _section(title, table, page, display, terminal, texts, None)
        sections.insert(0 if page.views else len(sections), section)
    foot = [] if terminal.height is None else [_foot(display, terminal)]
    if terminal.height is not None:
        sections = _fitting(sections, terminal.height - len(head) - len(foot))
    lines = [*head, *(line for section in sections for line in section)]
    if terminal.height is not None:
        lines = lines[: terminal.height - len(foot)]
    return [*lines, *foot]


def _head_lines(found: Snapshot, display: Display, terminal: Terminal) -> Iterator[str]:
    master = found.master
    at = f"{datetime.fromtimestamp(found.now_ms / 1000, UTC):%H:%M:%SZ}" if found.now_ms else ""
    if terminal.width < _NARROW:
        title = f"{at} {found.address} term {master['epoch']}".strip()
    else:
        version, term = master["version"], master["epoch"]
        title = f"croupier top {at}  master {found.address} (term {term}, {version})"
    yield terminal.style(cut(printable(title), terminal.width), "1")
    if display.problem:
        yield terminal.style(cut(printable(display.problem), terminal.width), "1;31")
    if master["agents_missing"]:
        missing = master["agents_missing"]
        have = "agent has" if missing == 1 else "agents have"
        line = f"{missing} known {have} not come back since the failover"
        yield terminal.style(cut(line, terminal.width), "33")


def _bars(found: Snapshot, terminal: Terminal) -> Iterator[str]:
    master = found.master
    totals: Mapping[str, int] = master["total"]["milli"]
    names = [name for name in _FIRST if name in totals]
    names += sorted(name for name in totals if name not in _FIRST)
    for name in names[:MOST_BARS]:
        parts = {key: master[key]["milli"].get(name, 0) for key in ("used", "offered", "held")}
        yield _bar(name, parts, totals[name], terminal)
    if not names:
        hidden = "you may not view the totals of the cluster"
        yield cut(hidden if TOTALS in found.hidden else "no agents are connected", terminal.width)


def _bar(name: str, parts: Mapping[str, int], total: int, terminal: Terminal) -> str:
    """Return a bar with its numbers: used, offered, held and free parts of a resource."""
    marks, free = ("#=-", ".") if terminal.is_ascii else ("█▒░", "·")
    share = f"{100 * parts['used'] / total:.0f} %" if total else "-"
    numbers = f"{share} of {format_scalar(name, total)}"
    if terminal.width >= _NARROW:
        shown = [each for each in parts if parts[each] or each != "held"]
        words = [f"{format_scalar(name, parts[each])} {each}" for each in shown]
        numbers = f"{share}: {', '.join(words)}, of {format_scalar(name, total)}"
    numbers = cut(numbers, max(terminal.width - _LABEL - 4, 10))
    room = max(terminal.width // 3, 8)
    bar, left = "", room
    for milli, mark, colour in zip(parts.values(), marks, ("36", "33", "35"), strict=True):
        length = min(round(room * milli / total) if total else 0, left)
        bar, left = bar + terminal.style(mark * length, colour), left - length
    line = f"{cut(printable(name), _LABEL):{_LABEL}} {bar}{free * left} "
    room_left = terminal.width - _LABEL - 2 - room
    return line + cut(numbers, max(room_left, 0))


def _section(
    title: str,
    table: Table,
    page: Page,
    display: Display,
    terminal: Terminal,
    texts: Callable[[View], Sequence[str]],
    key: Callable[[View], tuple[object, ...]] | None,
) -> list[str]:
    """Return the lines of a table with its title, and an empty line."""
    sought = display.filter.lower()
    views = [each for each in page.views if any(sought in one.lower() for one in texts(each))]
    if key is not None:
        views.sort(key=key)
    more = "" if page.is_all else "+"
    number_of = f"{len(views)} of {len(page.views)}{more}" if sought else f"{len(page.views)}{more}"
    heading = terminal.style(cut(f"{title}: {number_of}", terminal.width), "1")
    if not views:
        nothing = table.empty if not page.views else "nothing matches the filter"
        return [heading, cut(nothing, terminal.width), ""]
    shown = views[: terminal.height or MOST_ROWS]
    rows = lines_of(Table(table.columns, ""), shown, terminal.width, notes=False)
    return [heading, *(cut(row, terminal.width) for row in rows), ""]


def _fitting(sections: list[list[str]], room: int) -> list[list[str]]:
    """Return the sections in `room` lines: first one row of each, then more in turn."""
    wanted = [len(each) for each in sections]
    given = [0] * len(sections)
    left = max(room, 0)
    while left and any(have < want for have, want in zip(given, wanted, strict=True)):
        for at in range(len(sections)):
            # A title, the heads of columns, a row and an empty line.
            more = min(4, wanted[at] - given[at], left)
            given[at] += more
            left -= more
    return [_shortened(each, lines) for each, lines in zip(sections, given, strict=True)]


def _shortened(section: list[str], lines: int) -> list[str]:
    if lines >= len(section):
        return section
    if lines < 2:
        return section[:lines]
    # An empty line ends it, as it ends a whole one.
    return [*section[: lines - 1], ""]


def _foot(display: Display, terminal: Terminal) -> str:
    if display.is_typing:
        line = f"filter: {printable(display.filter)}_  (Enter: done, Esc: none)"
    else:
        filtered = f"  filter: {printable(display.filter)}" if display.filter else ""
        line = f"q quit  s sort: {display.order}  / filter{filtered}"
    line = cut(line, terminal.width)
    return terminal.style(line + " " * (terminal.width - text_width(line)), "7")


def _task_texts(view: View) -> Sequence[str]:
    return (view["task_id"], view["framework_name"], view["hostname"], view["message"])


def _agent_texts(view: View) -> Sequence[str]:
    return (view["agent_id"], view["hostname"], agents.state_text(view))
