"""Metrics that are read from the present state at each scrape.

A new metric is one entry in one of the tables. Labels are bounded: states, resources and roles.
A follower has no state: it exports `PROCESS` and `LEADERSHIP` only. A scrape is O(agents + tasks).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from prometheus_client.registry import Collector

from croupier.master.core import agents
from croupier.master.core.frameworks import FrameworkState
from croupier.master.core.hold_charges import idle_in_pool
from croupier.master.core.state import State
from croupier.master.eventlog.recorder import EVENT_LOG
from croupier.master.leadership.leadership import Leadership
from croupier.master.leadership.recovery import agents_missing, tasks_undecided
from croupier.master.leadership.term import Term
from croupier.master.metrics.series import (
    FRAMEWORKS,
    ROLES,
    TopNames,
    framework_series,
    role_series,
)
from croupier.master.services.filters import agent_words
from croupier.model.resources import total_of
from croupier.model.task import TaskState
from croupier.process.metric_families import Family, FamilyCollector, exported_amount

T = TypeVar("T")


def _agents(state: State) -> dict[str, float]:
    tally = Tally(
        "stopped" if agent.is_stopped else agent.state_name for agent in state.agents.values()
    )
    return {name: tally[name] for name in (*agents.STATE_NAMES, "stopped")}


def _agents_withheld(state: State) -> dict[str, float]:
    tally = Tally(word for agent in state.agents.values() for word in agent_words(agent))
    return {word: tally[word] for word in ("draining", "drained", "deactivated", "unhealthy")}


def _drain_tasks_left(state: State) -> float:
    draining = (agent for agent in state.agents.values() if agent.drain is not None)
    return sum(not task.state.is_terminal for agent in draining for task in agent.tasks.values())


def _frameworks(state: State) -> dict[str, float]:
    tally = Tally(framework.state.value for framework in state.frameworks.values())
    return {each.value: tally[each.value] for each in FrameworkState}


def _tasks(state: State) -> dict[str, float]:
    # There may be 100,000: neither properties nor names are looked up for each.
    tally = Tally(
        task.status.state
        for framework in state.frameworks.values()
        for task in framework.tasks.values()
    )
    return {each.name: tally[each] for each in TaskState}


def _resources(state: State) -> dict[tuple[str, ...], float]:
    pooled = [agent for agent in state.agents.values() if agent.in_pool]
    missing = [agent for agent in state.agents.values() if agent.is_absent]
    amounts = {
        "total": total_of(agent.total for agent in pooled),
        "used": total_of(state.used(agent) for agent in pooled),
        "offered": total_of(offer.resources for offer in state.offers.values()),
        "held": idle_in_pool(state),
        "missing": total_of(agent.total for agent in missing),
        "undecided": total_of(state.used(agent) for agent in missing),
    }
    names = {name: None for amount in amounts.values() for name in amount.scalars}
    return {
        (resource, label): exported_amount(resource, amount[resource])
        for label, amount in amounts.items()
        for resource in names
    }


def _lined_up(term: Term) -> int:
    """Return how many tasks are lined up. O(agents that have some)."""
    state = term.driver.state
    return sum(len(state.agents[each].line) for each in state.lined)


def _oldest_queued_s(term: Term) -> float:
    """Return how long the oldest queued task waits, in seconds; since the term began at most."""
    now, began_at = term.clock.now(), term.recovery.began_at
    frameworks = term.driver.state.frameworks.values()
    heads = (task.since for framework in frameworks for task in framework.queues.heads())
    return max((now - max(since, began_at) for since in heads), default=0.0)


PROCESS: Final[tuple[Family[float], ...]] = (
    Family(
        "master_start_time_seconds",
        "Start time of this master in seconds since the Unix epoch.",
        lambda started_s: started_s,
    ),
)

LEADERSHIP: Final[tuple[Family[Leadership], ...]] = (
    Family(
        "master_leader", "1 if this master leads, else 0.", lambda leadership: leadership.is_leader
    ),
    Family(
        "master_knows_leader",
        "1 if this master leads or knows the address of the leader, else 0.",
        lambda leadership: bool(leadership.leader),
    ),
    Family(
        "master_terms",
        "Terms that began on this master.",
        lambda leadership: leadership.terms_begun,
        is_counter=True,
    ),
)

TERM: Final[tuple[Family[Term], ...]] = (
    Family("master_epoch", "Epoch of the current term.", lambda term: term.epoch),
    Family(
        "master_store_commits",
        "Commits to the cluster's store since it was created.",
        lambda term: term.lineage.position().commit,
    ),
    Family(
        "master_term_begin_seconds",
        "Time that the current term took to begin.",
        lambda term: term.began_s,
    ),
    Family(
        "recovery_agents",
        "Agents in the registry when the current term began.",
        lambda term: term.recovery.agents,
    ),
    Family(
        "recovery_tasks",
        "Tasks in the registry when the current term began.",
        lambda term: term.recovery.tasks,
    ),
    Family(
        "recovery_seconds",
        "Time from the start of the current term until no agent was missing.",
        lambda term: term.recovery.complete_s,
    ),
    Family(
        "tasks_lined_up",
        "Submitted tasks that are lined up at agents, behind tasks like them.",
        _lined_up,
    ),
    Family(
        "tasks_queued_oldest_seconds",
        "Time for which the oldest queued task has waited in this term; 0 if none is queued.",
        _oldest_queued_s,
    ),
    Family(
        "queue_depth",
        "Messages in the master's queues.",
        lambda term: {"inbox": len(term.driver.inbox), "outboxes": term.sessions.queued()},
        ("queue",),
    ),
    Family(
        "messages_dropped",
        "Messages dropped because the peer had disconnected or did not read.",
        lambda term: term.sessions.dropped,
        is_counter=True,
    ),
    Family(
        "sessions_not_accepted",
        "Sessions of agents and frameworks that ended before they were accepted: there were too"
        " many (full), the master refused them (refused), or the peer went (left).",
        lambda term: term.sessions.not_accepted,
        ("why",),
        is_counter=True,
    ),
)

STATE: Final[tuple[Family[State], ...]] = (
    Family("offers_outstanding", "Outstanding offers.", lambda state: len(state.offers)),
    Family(
        "allocator_unsettled_agents",
        "Agents that wait for an allocation pass.",
        lambda state: state.allocator.dirty_agents,
    ),
    Family(
        "offer_filters",
        "Decline filters in force, one for each framework and agent.",
        lambda state: state.allocator.queries.filter_count(),
    ),
    Family(
        "agents_missing",
        "Agents in the registry that have not re-registered in the current term.",
        agents_missing,
    ),
    Family("tasks_undecided", "Tasks of missing agents, whose state is unknown.", tasks_undecided),
    Family(
        "tasks_unacknowledged",
        "Ended tasks whose terminal status no framework has acknowledged.",
        lambda state: sum(framework.ended for framework in state.frameworks.values()),
    ),
    Family("agents", "Agents by state; stopped: drained and not connected.", _agents, ("state",)),
    Family(
        "agents_withheld",
        "Agents withheld from allocation: by an operator, or because they are unhealthy.",
        _agents_withheld,
        ("why",),
    ),
    Family("drain_tasks_left", "Tasks left on draining agents.", _drain_tasks_left),
    Family("frameworks", "Frameworks by state.", _frameworks, ("state",)),
    Family("tasks", "Tasks by state.", _tasks, ("state",)),
    Family(
        "resources",
        "Resources of the cluster; mem and disk in bytes. State held is the part of holds that is"
        " neither used nor offered. State missing is the capacity of agents that have not"
        " re-registered in the current term, undecided the part that their tasks hold. Missing and"
        " undecided count in shares and limits, and not in total.",
        _resources,
        ("resource", "state"),
    ),
)


def collectors(
    leadership: Leadership, started_s: float, most_roles: int, most_frameworks: int
) -> Iterator[Collector]:
    """Return collectors of all tables, with so many series; `started_s` is seconds since 1970."""

    def chosen(choose: Callable[[State, TopNames, float], T], most: int) -> Callable[[], T | None]:
        names = TopNames(most)

        def choose_now() -> T | None:
            term = leadership.current
            return None if term is None else choose(term.driver.state, names, term.clock.now())

        return choose_now

    yield FamilyCollector(PROCESS, lambda: started_s)
    yield FamilyCollector(LEADERSHIP, lambda: leadership)
    yield FamilyCollector(TERM, lambda: leadership.current)
    yield FamilyCollector(STATE, lambda: leadership.state)
    yield FamilyCollector(ROLES, chosen(role_series, most_roles))
    yield FamilyCollector(FRAMEWORKS, chosen(framework_series, most_frameworks))
    yield FamilyCollector(EVENT_LOG, leadership.recorder)
