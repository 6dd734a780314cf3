"""Explanations for operators: why a framework gets no more offers.

Rule: an explanation names another role, principal, framework or agent only to a caller that may
view it. The details of the allocator name frameworks in the role that they are about, and compare
that role and the framework's own up to the node where they part: so the text is shown only if both
paths are visible, and is replaced by a general one if not. It is also shown if both frameworks are
the caller's and in one role.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Final

from croupier.master.allocator import Cause, PassedOver
from croupier.master.allocator.preemptor import Protection
from croupier.master.core import hold_charges
from croupier.master.core.effects import PAUSE, Pause
from croupier.master.core.frameworks import Framework
from croupier.master.core.on_preemption import holdings_of
from croupier.master.core.roles import count_tasks, in_tree_order
from croupier.master.core.state import State
from croupier.master.services import views
from croupier.master.services.visibility import Visibility
from croupier.model.durations import duration_text
from croupier.model.errors import NotFound
from croupier.model.ids import AgentId, FrameworkId, HoldId, Role, short_id
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.resources import total_of
from croupier.model.roles import EVEN, ancestors, is_within
from croupier.model.scalar import format_milli
from croupier.v1 import operator_pb2 as pb

# Causes that lie in a role, mostly another one, with the text for callers that may not view it.
_ABOUT_A_ROLE: Final[Mapping[Cause, str]] = {
    Cause.LIMIT: "a role is at its limit",
    Cause.BUDGET: "a role has used up its budget",
    Cause.GUARANTEE: "it went to another {}, in a role below its guarantee",
    Cause.OUTRANKED: "it went to another {}, which comes first",
    Cause.KEPT: "it is reserved for another {}, which comes first",
    Cause.EARMARKED: "it is earmarked for another {}",
    Cause.RESERVED: "it is reserved for another role",
    Cause.RESERVATIONS: "it has a reservation",
    Cause.HELD: "it is held for another {}",
    Cause.MIN_RUN: "it waits until tasks of another {} have run for their minimum time",
}
# Causes that lie in an agent, with the text for callers that may not view it.
_ABOUT_AN_AGENT: Final[Mapping[Cause, str]] = {
    Cause.DRAINING: "agents are being drained",
    Cause.DEACTIVATED: "an operator has deactivated agents",
    Cause.UNHEALTHY: "agents are unhealthy",
    Cause.AGENT_AWAY: "the agent is not connected",
}
# Causes that no agent could change.
_OF_ITS_OWN: Final = (Cause.NO_DEMAND, Cause.SUPPRESSED, Cause.DISCONNECTED)
# The agent of the latest case, at the beginning of a detail.
_ANY_AGENT: Final = re.compile(r"\bagent ([^\s:,;]+)")
_AGENT: Final = re.compile(r"^agent \S+: ")


def view_reasons(
    state: State,
    framework_id: FrameworkId,
    agent_id: AgentId,
    now: float,
    caller: Principal = ANONYMOUS,
) -> Generator[Pause, None, pb.ExplainResponse]:
    """Explain why a framework gets no more offers, of any agent or `agent_id`; raises NotFound."""
    visible, framework = Visibility(state, caller), state.frameworks.get(framework_id)
    if framework is None or not visible.has_framework(framework):
        raise NotFound(f"no framework {framework_id!r}")
    if agent_id and (agent_id not in state.agents or not visible.has_agent(agent_id)):
        raise NotFound(f"no agent {agent_id!r}")
    tasks = count_tasks(state)
    reasons: Iterable[PassedOver] = yield from _reasons(state, framework, agent_id, now)
    if not visible.has_all:
        roles = visible.roles_of(framework)
        reasons = [_redacted(each, visible, caller) for each in reasons if each.role in roles]
    reasons = [*reasons, *_past_use(state, reasons, visible)]
    return pb.ExplainResponse(
        reasons=[reason_to_wire(named_reason(state, each, framework_id)) for each in reasons],
        framework=views.view_framework(state, framework, now, visible),
        policy=state.allocator.queries.policy,
        roles=[
            views.view_role(state.allocator.queries.role_status(role, *tasks.of(role)))
            for role in in_tree_order(state.allocator.queries.roles_of(framework_id))
            if visible.has_role(role)
        ],
        lined_up_hosts=sorted(
            state.agents[agent_id].hostname
            for agent_id in {t.agent_id for t in framework.tasks.values() if t.is_lined_up}
            if visible.has_agent(agent_id)
        ),
    )


def _redacted(passed: PassedOver, visible: Visibility, caller: Principal) -> PassedOver:
    """Return the reason without what the caller may not view."""
    if passed.cause in _ABOUT_A_ROLE:
        # Roots are visible if everything on the two paths is.
        roots = {Role(role.partition("/")[0]) for role in (passed.role, passed.about)}
        owner = visible.owner_of(FrameworkId(passed.rival))
        is_own = bool(owner) and owner == caller.name
        if not all(map(visible.has_role, roots)) and not (is_own and passed.about == passed.role):
            other = "principal" if owner and not is_own else "framework"
            detail = _ABOUT_A_ROLE[passed.cause].format(other)
            return replace(passed, detail=detail, about="", rival="")
        return replace(passed, detail=_AGENT.sub("", passed.detail))
    if passed.cause is Cause.ELIGIBLE:
        # The rest names who was served instead.
        passed = replace(passed, detail=passed.detail.partition(";")[0])
    if passed.about and not visible.has_agent(AgentId(passed.about)):
        general = _ABOUT_AN_AGENT.get(passed.cause)
        detail = passed.detail.replace(f"agent {passed.about}", "an agent")
        return replace(passed, detail=general or detail, about="")
    return passed


def _reasons(
    state: State, framework: Framework, agent_id: AgentId, now: float
) -> Generator[Pause, None, list[PassedOver]]:
    framework_id, roles = framework.framework_id, framework.roles
    why = views.withheld_reason(state.agents[agent_id]) if agent_id else None
    if why is not None:
        cause, detail = why
        return [PassedOver(cause, 1, detail, role, agent_id) for role in roles]
    found: list[PassedOver] = []
    for each in state.allocator.queries.explaining(framework_id, agent_id or None, now):
        if each is None:
            yield PAUSE
        else:
            found.append(each)
    if not agent_id and any(each.cause not in _OF_ITS_OWN for each in found):
        found += views.withheld_reasons(state, roles[0])
    if not agent_id:
        found += [*_holds(state, framework), *_volumes(state, framework)]
        found += _reservations(state, framework, now)
    found += _preemption(state, found, framework, now)
    returning = [] if agent_id else list(_returning(framework))
    # A role in which a gang starts again does not have all that it wants.
    in_roles = {each.role for each in returning}
    told = [
        each for each in found if each.cause is not Cause.NO_DEMAND or each.role not in in_roles
    ]
    return [*told, *returning]


def _returning(framework: Framework) -> Iterable[PassedOver]:
    """Yield, for each role, how many tasks wait for their gang to start again."""
    roles = Counter(task.role for task in framework.queues.returning.values())
    for role, number in roles.items():
        tasks, their = ("task waits", "its gang") if number == 1 else ("tasks wait", "their gangs")
        detail = f"{number} queued {tasks} until the other runs of {their} have ended"
        yield PassedOver(Cause.GANG, 0, detail, role)


def _holds(state: State, framework: Framework) -> Iterable[PassedOver]:
    """Yield, for each role of the framework, what it holds, and what is unused of that."""
    for role in framework.roles:
        mine = [
            hold
            for hold in state.holds.values()
            if hold.is_charged and not hold.volume and hold.owner == (framework.framework_id, role)
        ]
        if not mine:
            continue
        held = total_of(hold.resources for hold in mine)
        unused = total_of(hold_charges.unused(state, hold) for hold in mine)
        number = "a hold" if len(mine) == 1 else f"{len(mine)} holds"
        detail = (
            f"{number} of {held or 'ranges'} counts in its share,"
            f" used or not; {unused or 'nothing'} is unused"
        )
        yield PassedOver(Cause.HOLDS, len({hold.agent_id for hold in mine}), detail, role)


def _reservations(state: State, framework: Framework, now: float) -> Iterable[PassedOver]:
    """Yield the reservations of the framework's roles that have not begun, and what they lack."""
    wall_ms = state.wall_ms(now)
    for role in framework.roles if wall_ms is not None else ():
        for each in state.reservations.values():
            if not is_within(role, each.role):
                continue
            begins_s = (each.times.from_ms - wall_ms) / 1000 if wall_ms is not None else 0.0
            agents = f"{len(each.agent_ids)} of {each.wanted.agents} agents"
            when = f"begins in {duration_text(begins_s)}" if begins_s > 0 else "has begun"
            detail = f"reservation {each.reservation_id} of {agents} for role {each.role} {when}"
            number = len(each.agent_ids)
            yield PassedOver(Cause.RESERVATIONS, number, detail, role, each.role)


def _volumes(state: State, framework: Framework) -> Iterable[PassedOver]:
    """Yield, for each kind of queued task that has a volume, where that is. O(kinds)."""
    for task in framework.queues.heads():
        names = ", ".join(mount.volume_id for mount in task.info.volumes)
        if not names:
            continue
        hold = state.holds.get(HoldId(task.info.volumes[0].volume_id))
        if hold is None:
            detail = f"task {task.task_id} waits for volumes {names}, which were released"
            yield PassedOver(Cause.VOLUMES, 0, detail, task.role)
            continue
        agent = state.agents[hold.agent_id]
        detail = (
            f"task {task.task_id} waits for agent {agent.agent_id}, which has its volumes"
            f" {names} and is {agent.state_name}"
        )
        yield PassedOver(Cause.VOLUMES, 1, detail, task.role, agent.agent_id)


def _past_use(
    state: State, reasons: Iterable[PassedOver], visible: Visibility
) -> Iterable[PassedOver]:
    """Yield what the past use of the waiting roles, and of those above, makes of their weights."""
    queries = state.allocator.queries
    waiting = dict.fromkeys(each.role for each in reasons if each.cause not in _OF_ITS_OWN)
    for role in waiting:
        for each in filter(visible.has_role, (role, *ancestors(role))):
            past = queries.past_use(each)
            if past is None or past.factor == EVEN:
                continue
            half_life_s = queries.roles()[each].half_life_ms / 1000
            detail = (
                f"{each} used {past.part_ppm / 1_000_000:.0%} of the past"
                f" (half-life {duration_text(half_life_s)}, including its share of unused"
                f" resources) against a share of {past.share_ppm / 1_000_000:.0%}: its weight"
                f" counts {format_milli(past.factor)} times now"
            )
            yield PassedOver(Cause.PAST_USE, 0, detail, role)


def _preemption(
    state: State, reasons: Iterable[PassedOver], framework: Framework, now: float
) -> Iterable[PassedOver]:
    """Yield, for each waiting role of the framework, when the master preempts for it."""
    waiting = {passed.role for passed in reasons if passed.cause is not Cause.ELIGIBLE}
    if any(passed.cause is Cause.NO_AGENTS for passed in reasons):
        # Preemption could free resources only on agents that take no tasks.
        return
    for role in framework.roles:
        if role not in waiting:
            continue
        place = (framework.framework_id, role)
        found = state.preemptor.protection(*place, partial(holdings_of, state), now)
        if found is not None:
            yield _protection(found, role)
        elif (text := state.preemptor.describe(*place, now)) is not None:
            yield PassedOver(Cause.PREEMPTION, 0, text, role)


def _protection(found: Protection, role: Role) -> PassedOver:
    """Return the reason that tasks of another framework are too young to be preempted."""
    other = found.leaf
    detail = (
        f"it has starved for {found.starving_s:.0f} s, and other frameworks are asked to end tasks"
        f" for it in at most {ceil(found.left_s)} s, when task {found.task_id} of framework"
        f" {other.framework_id} in role {other.role} has run for its minimum time"
    )
    return PassedOver(Cause.MIN_RUN, 0, detail, role, other.role, other.framework_id)


def named_reason(state: State, passed: PassedOver, framework_id: FrameworkId) -> PassedOver:
    """Return the reason with names before the ids of its agent, its framework and its rival."""

    def agent_name(found: re.Match[str]) -> str:
        agent = state.agents.get(AgentId(found[1]))
        short = short_id(found[1])
        return f"agent {short if agent is None else f'{agent.hostname} ({short})'}"

    detail = passed.detail
    for own_id in filter(None, (framework_id, FrameworkId(passed.rival))):
        framework, short = state.frameworks.get(own_id), short_id(own_id)
        text = short if framework is None else f"{framework.name} ({short})"
        # One id may begin with another.
        detail = text.join(re.split(rf"\b{re.escape(own_id)}\b", detail))
    return replace(passed, detail=_ANY_AGENT.sub(agent_name, detail))


def reason_to_wire(passed: PassedOver) -> pb.PassedOver:
    """Return the message for a reason."""
    wire = pb.PassedOver(
        cause=passed.cause.value, agents=passed.agents, detail=passed.detail, role=passed.role
    )
    if passed.cause in _ABOUT_A_ROLE and passed.about:
        wire.about_role = passed.about
    elif passed.about:
        wire.about_agent_id = passed.about
    return wire
