"""Checks of the registration of an agent: its identity, resources and tasks.

Shares are fractions of all agents' resources. So an agent that invents resources would take from
all frameworks, and is refused. A cluster has at most 64 kinds of resources. An agent is refused
only for new kinds of its own; a kind that no agent has does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from croupier.master.core.effects import PAUSE, Pause
from croupier.master.core.events import AgentTask, Register
from croupier.master.core.on_requeue import is_earlier_run, may_have
from croupier.master.core.state import State
from croupier.model.devices import DEVICES, Inventory
from croupier.model.errors import (
    Conflict,
    InvalidRequest,
    PermissionDenied,
    Removed,
    Unauthenticated,
    Unavailable,
)
from croupier.model.ids import AgentId, check_hostname, check_id
from croupier.model.resources import FIRST, MAX_NAMES, Resources, sum_of
from croupier.model.task import TaskState
from croupier.model.task_checks import check_grace
from croupier.model.task_transitions import REPORTABLE

# Kinds for which there is always room.
STANDARD = frozenset({*FIRST, "ports"})
# The error names at most this many kinds.
_NAMED = 8


def identified(state: State, event: Register) -> Register:
    """Return `event` with the id that the agent has proven.

    Raises Unauthenticated if it has no credential; PermissionDenied if it has proven another id, or
    has not all attributes of its join token.
    """
    if not state.access.is_on:
        return event
    agent_id = event.principal.agent_id
    if event.principal.is_anonymous:
        raise Unauthenticated("an agent needs a certificate, or a token by a join token")
    if agent_id is None or event.agent_id not in ("", agent_id):
        raise PermissionDenied(f"{event.principal} is not agent {event.agent_id[:80]!r}")
    token = state.tokens.of_agent(agent_id)
    if token is not None and (missing := token.missing_in(event.attributes)):
        raise PermissionDenied(f"agent {agent_id} has joined as one with attribute {missing[0]}")
    return replace(event, agent_id=agent_id)


def check_registration(state: State, event: Register) -> Iterator[Pause]:
    """Check a registration before anything is changed. O(tasks).

    Raises Removed, InvalidRequest if the agent was declared gone, or the message is malformed.
    """
    if event.agent_id:
        check_id("agent", event.agent_id)
    if event.agent_id in state.gone:
        raise Removed(f"an operator has declared agent {event.agent_id} gone")
    check_hostname(event.hostname)
    if not event.total:
        raise InvalidRequest("the agent has no resources")
    inventory = inventory_of(event)
    seen: set[tuple[str, str]] = set()
    for report in event.tasks:
        yield PAUSE
        key = (report.framework_id, report.task.task_id)
        if key in seen:
            raise InvalidRequest(f"task {report.task.task_id} is listed twice")
        seen.add(key)
        _check_report(state, event.agent_id, report)
        is_live = inventory is not None and not report.latest.state.is_terminal
        if is_live and inventory is not None and not inventory.is_certain(report.task.resources):
            raise InvalidRequest(f"task {report.task.task_id} has devices without names")
    live = (each for each in event.tasks if not each.latest.state.is_terminal)
    try:
        held = sum_of(report.task.resources for report in live)
    except ValueError as error:
        raise InvalidRequest(f"the agent's tasks overlap: {error}") from None
    if not held <= event.total:
        raise InvalidRequest(f"the agent's tasks hold {held}, but it has only {event.total}")


def inventory_of(event: Register) -> Inventory | None:
    """Return the agent's named devices; None without any.

    Raises InvalidRequest if they are malformed, or its resources do not agree with them.
    """
    if not event.devices:
        return None
    inventory = Inventory(event.devices)
    inventory.check(event.total)
    return inventory


def _check_report(state: State, agent_id: AgentId, report: AgentTask) -> None:
    """Check that a listed task is consistent, and agrees with the ledger."""
    check_id("framework", report.framework_id)
    task_id = check_id("task", report.task.task_id)
    check_grace(report.task.grace_ms)
    framework = state.frameworks.get(report.framework_id)
    known = framework.tasks.get(report.task.task_id) if framework else None
    # A queued task of an older copy of the store may ask for any ports, and have some here.
    # An agent that never had a task answers KILL by GONE, without resources.
    is_gone = report.latest.state is TaskState.GONE
    # The next run of a requeued task may have got other ports and devices here.
    has_other = is_gone or is_earlier_run(state, report)
    is_own = known is not None and known.agent_id == agent_id and not has_other
    if known is not None and is_own and not may_have(known, report.task.resources):
        raise InvalidRequest(f"task {task_id} was launched with {known.info.resources}")
    waiting = report.unacknowledged
    for status in (*waiting, report.latest):
        named = (status.agent_id, status.framework_id, status.task_id)
        if named != (agent_id, report.framework_id, task_id):
            raise InvalidRequest(f"task {task_id} is listed with another's status")
        if status.state not in REPORTABLE or status.sequence < 1:
            raise InvalidRequest(f"task {task_id} is listed as {status.state.name}")
    is_rising = all(one.sequence < two.sequence for one, two in pairwise(waiting))
    if not is_rising or (waiting and waiting[-1].without_data() != report.latest.without_data()):
        raise InvalidRequest(f"task {task_id} is listed with updates out of order")
    if report.latest.state.is_terminal and not waiting:
        raise InvalidRequest(f"task {task_id} has ended and waits for nothing")


def check_order(state: State, event: Register) -> None:
    """Check that the agent has not registered since it sent this.

    It was under way on an earlier stream, and does not list what came after it was sent. Raises
    Unavailable if it has.
    """
    agent = state.agents.get(event.agent_id)
    if agent is not None and agent.was_overtaken(event.boot_id, event.sent_ms):
        raise Unavailable("the agent has registered since it sent this; it is to register again")


def check_size(state: State, event: Register) -> None:
    """Raise Conflict if the agent has more than the cluster, or its join token, allows."""
    bounds = {"--max-agent-resources of the master": state.settings.max_agent}
    token = state.tokens.of_agent(event.agent_id)
    if state.access.is_on and token is not None:
        bounds["the token with which it joined"] = token.max_resources
    for whose, bound in bounds.items():
        named = Resources({name: event.total[name] for name in bound.scalars})
        if excess := named.excess(bound):
            raise Conflict(
                f"the agent has too many resources: {excess}, which {whose} allows; correct its"
                " --resources, or raise the bound"
            )


def check_kinds(state: State, event: Register) -> None:
    """Check that the cluster has room for the agent's kinds.

    O(kinds) if all are known scalars, else O(agents). Raises Conflict if it has none.
    """
    mine = _names(event.total) - STANDARD
    if mine <= _scalars_of_others(state, event):
        return
    others = set(STANDARD)
    for agent in state.agents.values():
        if agent.in_pool and agent.agent_id != event.agent_id:
            others |= _names(agent.total)
    new = sorted(mine - others)
    if new and len(others) + len(new) > MAX_NAMES:
        named = ", ".join(new[:_NAMED])
        more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        raise Conflict(
            f"a cluster has at most {MAX_NAMES} kinds of resources, and no room for {named}{more},"
            " which only this agent has; start it without them (--resources), or end agents that"
            " brought kinds of their own"
        )


def _scalars_of_others(state: State, event: Register) -> set[str]:
    agent = state.agents.get(event.agent_id)
    own = agent.total if agent is not None and agent.in_pool else None
    total = state.allocator.queries.total
    return {name for name, milli in total.items() if own is None or milli != own[name]}


def _names(resources: Resources) -> set[str]:
    # The names of devices are no kind of their own.
    return {*resources.scalars, *resources.ranges, *resources.sets} - {DEVICES}
