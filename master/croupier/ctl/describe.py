"""Fetching all that is known about one object, for `croupier describe`.

Rule: bounded. Of an object's tasks and frameworks only the first are fetched, and of its events
the latest among those that the master returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any, Final

from croupier.api.objects import as_object
from croupier.cli.amounts import View
from croupier.cli.connection import Master, run
from croupier.cli.flags import Target
from croupier.cli.table import terminal_width
from croupier.ctl.lists import (
    AGENTS,
    FRAMEWORKS,
    ROLES,
    TASKS,
    ListKind,
    all_of,
    find_agent,
    find_framework,
    first_page,
)
from croupier.ctl.operation import print_result
from croupier.ctl.views.described import agent_page, framework_page, role_page
from croupier.model.errors import CroupierError, NotFound
from croupier.model.task import TERMINAL, TaskState
from croupier.v1 import operator_pb2 as pb

MOST_ITEMS: Final = 10
MOST_EVENTS: Final = 8
# Events that are looked through.
EVENTS_SEARCHED: Final = 2_000
_LIVE: Final = sorted(state.value for state in TaskState if state not in TERMINAL)


def describe_agent(target: Target, named: str, *, as_json: bool) -> None:
    """Print all about the agent of this id or hostname; raises as `find_agent`."""

    async def fetch(master: Master) -> View:
        agent_id = (await find_agent(master, named))["agent_id"]
        agent = await _row(master, AGENTS, "agent_id", agent_id)
        tasks = await first_page(master, TASKS, MOST_ITEMS, agent=agent_id, states=_LIVE)
        events = await recent_events(master, lambda each: each.agent_id == agent_id)
        return {"agent": agent, "tasks": tasks, "events": events}

    view = run(target, fetch)
    print_result(_public(view), *agent_page(view, terminal_width()), as_json=as_json)


def describe_framework(target: Target, named: str, *, as_json: bool) -> None:
    """Print all about the framework of this id or name; raises as `find_framework`."""

    async def fetch(master: Master) -> View:
        framework_id = (await find_framework(master, named))["framework_id"]
        framework = await _row(master, FRAMEWORKS, "framework_id", framework_id)
        request = pb.ExplainRequest(framework_id=framework_id)
        why = as_object(await master.ask(master.service.Explain, request))
        tasks = await first_page(master, TASKS, MOST_ITEMS, framework_id=framework_id, states=_LIVE)
        events = await recent_events(master, lambda each: each.framework_id == framework_id)
        return {"framework": framework, "why": why, "tasks": tasks, "events": events}

    view = run(target, fetch)
    print_result(_public(view), *framework_page(view, terminal_width()), as_json=as_json)


def describe_role(target: Target, role: str, *, as_json: bool) -> None:
    """Print all about a role.

    Raises:
        NotFound: if the master knows no such role.
    """

    async def fetch(master: Master) -> View:
        found = [each for each in await all_of(master, ROLES, text=role) if each["role"] == role]
        if not found:
            raise NotFound(
                f"no role {role!r} has frameworks or settings; croupier roles lists those that have"
            )
        below = [
            each
            for each in await all_of(master, FRAMEWORKS, text=role)
            if any(is_within(own, role) for own in each["roles"])
        ]
        below.sort(key=lambda each: (-each["share_ppm"], each["framework_id"]))
        tasks = await first_page(master, TASKS, MOST_ITEMS, role=role, states=_LIVE)
        events = await recent_events(master, lambda each: is_within(each.role, role))
        return {
            "role": found[0],
            "frameworks": below[:MOST_ITEMS],
            "tasks": tasks,
            "events": events,
        }

    view = run(target, fetch)
    print_result(_public(view), *role_page(view, terminal_width()), as_json=as_json)


def is_within(role: str, above: str) -> bool:
    """Return whether `role` is `above` or below it."""
    return role == above or role.startswith(f"{above}/")


async def recent_events(master: Master, is_about: Callable[[pb.ClusterEvent], bool]) -> list[View]:
    """Return the latest events that pass; none if the caller may not view events."""
    found: list[View] = []
    request = pb.WatchEventsRequest(limit=EVENTS_SEARCHED)
    try:
        answers = master.watch(master.service.WatchEvents, request)
        async with aclosing(answers):
            async for answer in answers:
                found += [as_object(each) for each in answer.events if is_about(each)]
                found = found[-MOST_EVENTS:]
    except CroupierError:
        return []
    return found


async def _row(master: Master, kind: ListKind, key: str, named: str) -> View:
    """Return an object of a list with its age.

    Raises:
        NotFound: if it has gone meanwhile.
    """
    found = await first_page(master, kind, 0, text=named)
    for each in found:
        if each[key] == named:
            return each
    raise NotFound(f"{named} has just left; croupier {kind.name} lists those that are there")


def _public(view: View) -> View:
    """Return it without what only tables show."""
    return {key: _without_age(each) for key, each in view.items()}


def _without_age(each: Any) -> Any:
    if isinstance(each, dict):
        return {key: value for key, value in each.items() if key != "age_s"}
    if isinstance(each, Iterable) and not isinstance(each, str):
        return [_without_age(item) for item in each]
    return each
