"""Lists of the master, page by page: for other commands, and printed as a table or JSON.

Rule: printing holds one page at a time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from textwrap import indent
from typing import Any, Final, Literal, TypeVar

from croupier.api.objects import as_object
from croupier.cli.connection import (
    ALL_AGENTS,
    EVERY_ROLE,
    Master,
    Refused,
    answers,
    first_answer,
    may_view,
    objects,
    restricted,
    run,
)
from croupier.cli.flags import Target
from croupier.cli.table import Column, Table, print_table
from croupier.cli.terminal import View
from croupier.ctl.views import agent, framework, hold, reservation, role, task
from croupier.model.errors import Conflict, InvalidRequest, NotFound
from croupier.model.ids import check_id, short_id
from croupier.v1 import operator_pb2 as pb

T = TypeVar("T")
# Of the text that a master searches for.
MAX_TEXT: Final = 500
# Objects of one name that an error lists.
MAX_CANDIDATES: Final = 10
# Fields of a request that choose no objects.
_DETAILS: Final = ("with_commands", "with_forecasts", "volumes")
# Names of a hint.
MAX_ALIKE: Final = 3

# The kinds of objects that the master lists.
TABLES: Final = {
    "agents": agent.AGENTS,
    "frameworks": framework.FRAMEWORKS,
    "holds": hold.HOLDS,
    "offers": task.OFFERS,
    "reservations": reservation.RESERVATIONS,
    "roles": role.ROLES,
    "tasks": task.TASKS,
}


def aged(answer: Any, kind: str) -> list[View]:
    """Return the objects of one answer with their ages (`age_s`), for a table."""
    now_ms = getattr(answer, "now_ms", 0)
    return [with_age(as_object(each), now_ms) for each in getattr(answer, kind)]


def with_age(view: View, now_ms: int) -> View:
    """Return an object with its age at the master's time `now_ms`; None: unknown."""
    since_ms = view.get("since_ms") or view.get("connected_since_ms")
    return {**view, "age_s": age_s(since_ms, now_ms)}


def age_s(since_ms: int | None, now_ms: int) -> float | None:
    """Return the seconds from one time to another; None if one is unknown."""
    return max(0, now_ms - since_ms) / 1000 if since_ms and now_ms else None


async def all_of(master: Master, kind: str, **fields: Any) -> list[View]:
    """Return the objects of all pages of a list; raises as `objects`."""
    return [as_object(each) async for each in objects(master, kind, **fields)]


async def first_page(master: Master, kind: str, size: int, **fields: Any) -> list[View]:
    """Return a list's first `size` objects, with ages; 0: a whole page; raises as `objects`."""
    return aged(await first_answer(master, kind, page_size=size, **fields), kind)


async def find_framework(master: Master, named: str) -> View:
    """Return the framework of an id, its short form or end, or name. Raises NotFound, Conflict."""
    known = await all_of(master, "frameworks", text=named[:MAX_TEXT])
    found = _named(known, named, lambda each: (each["framework_id"], each["name"]))
    if not found:
        hint = _alike(known, named)
        raise NotFound(f"no framework {named!r}; {hint}croupier frameworks lists them")
    if len(found) > 1:
        states = [f"{each['framework_id']} ({each['state']})" for each in found]
        raise Conflict(_ambiguous(f"several frameworks are called {named!r}", states))
    return found[0]


async def id_of(master: Master, kind: Literal["framework", "agent"], named: str) -> str:
    """Return the id of the object of this id or name; empty if that is empty.

    A well-formed id that the master does not list is returned in full: the object may have been
    removed. Raises CroupierError as for `find_framework` and `find_agent`.
    """
    if not named:
        return ""
    find = find_framework if kind == "framework" else find_agent
    try:
        return str((await find(master, named))[f"{kind}_id"])
    except NotFound:
        if short_id(f"c-{named}") == named:
            leader = await master.ask(master.service.GetMaster, pb.GetMasterRequest())
            return f"{leader.master_id.rpartition('-')[0]}-{named}"
        with suppress(InvalidRequest):
            return check_id(kind, named)
        raise


async def find_agent(master: Master, named: str) -> View:
    """Return the agent of an id, its short form or end, or hostname. Raises NotFound, Conflict."""
    known = [each async for each in objects(master, "agents", text=named[:MAX_TEXT])]
    found = _named(known, named, lambda each: (each.agent.agent_id, each.agent.hostname))
    if not found:
        raise NotFound(f"no agent has the id or hostname {named!r}; croupier agents lists them")
    if len(found) > 1:
        # The state distinguishes a lost machine from its replacement.
        states = [f"{each.agent.agent_id} ({each.state})" for each in found]
        raise Conflict(_ambiguous("several agents have this hostname", states))
    return as_object(found[0])


def _alike(frameworks: Sequence[View], word: str) -> str:
    """Return a hint at frameworks whose names contain the word; empty if there are none."""
    names = sorted({each["name"] for each in frameworks if word.lower() in each["name"].lower()})
    more = ", ..." if len(names) > MAX_ALIKE else ""
    return f"did you mean {', '.join(names[:MAX_ALIKE])}{more}? " if names else ""


def _ambiguous(problem: str, candidates: Sequence[str]) -> str:
    more = len(candidates) - MAX_CANDIDATES
    ids = ", ".join(candidates[:MAX_CANDIDATES]) + (f" and {more} more" if more > 0 else "")
    return f"{problem}; give an id: {ids}"


def _named(known: Sequence[T], named: str, ids: Callable[[T], tuple[str, str]]) -> list[T]:
    """Return the object of an id, or else of a name or a part of an id; `ids` returns both."""
    return (
        [each for each in known if ids(each)[0] == named]
        or [each for each in known if ids(each)[1] == named]
        or [each for each in known if short_id(ids(each)[0]) == named]
        or [each for each in known if ids(each)[0].endswith(f"-{named}")]
    )


def print_list(
    target: Target,
    kind: str,
    table: Table | None = None,
    *,
    as_json: bool,
    wide: bool = False,
    keep: Callable[[View], bool] = lambda _: True,
    framework: str = "",
    **fields: Any,
) -> None:
    """Print the objects of a kind that pass `keep`, in `table` (default: the kind's) or as JSON.

    `framework` is the id or name of the framework whose tasks are listed; `fields` are the other
    ones of the request. Raises NotFound or Conflict for the framework.
    """
    shown = table or TABLES[kind]
    if any(value for name, value in fields.items() if name not in _DETAILS):
        shown = Table(shown.columns, f"no {kind} pass these filters")

    async def printed(master: Master) -> None:
        if framework:
            fields["framework_id"] = await id_of(master, "framework", framework)
        is_empty = True
        titles: tuple[Column, ...] = ()
        async for page in answers(master, kind, **fields):
            objects = map(as_object, getattr(page, kind)) if as_json else aged(page, kind)
            views = [view for view in objects if keep(view)]
            if views and as_json:
                items = ",\n".join(indent(json.dumps(view, indent=2), "  ") for view in views)
                sys.stdout.write(("[\n" if is_empty else ",\n") + items)
            elif views:
                # A later page may have a column that the first one had not.
                columns = shown.trimmed(views).columns
                is_new = columns != titles
                print_table(shown, views, sys.stdout, with_titles=is_new, wide=wide)
                titles = columns
            is_empty = is_empty and not views
        if not is_empty:
            sys.stdout.write("\n]\n" if as_json else "")
            return
        if framework:
            await find_framework(master, fields["framework_id"])
        every = ALL_AGENTS if kind == "agents" else EVERY_ROLE
        if as_json:
            print("[]")
        else:
            print(shown.empty if await may_view(master, every) else restricted(shown.empty))

    async def checked(master: Master) -> None:
        try:
            await printed(master)
        except Refused as error:
            # Only values of the flags can be malformed: the master was found before.
            raise InvalidRequest(str(error)) from None

    run(target, checked)
