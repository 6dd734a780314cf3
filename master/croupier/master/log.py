"""The master's log of facts: one line each, with its ids; the end of a task has its whole life."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Final
from zlib import crc32

from croupier.master.core import facts
from croupier.master.core.state import State
from croupier.model.clock import Clock
from croupier.model.log_throttle import LogThrottle
from croupier.process.logging import get_logger, is_logged, time_text

# At most 16 refusals of agents, and of their tasks, are noted per minute.
REFUSALS_AT_ONCE, REFUSED_AGAIN_S = 16, 60.0
# In this time, one change each way of an agent's health is noted.
HEALTH_AGAIN_S = 1.0

_log = get_logger("croupier.master")

# The name and level of each fact's event; an invalid call is a warning.
EVENTS: Final[Mapping[type[facts.Fact], tuple[str, int]]] = {
    facts.AgentJoined: ("agent_joined", logging.INFO),
    facts.AgentLeft: ("agent_left", logging.INFO),
    facts.AgentOperated: ("agent_operated", logging.INFO),
    facts.AgentDrained: ("agent_drained", logging.INFO),
    facts.AgentRefused: ("agent_refused", logging.WARNING),
    facts.TasksUnproven: ("tasks_unproven", logging.WARNING),
    facts.AgentUnhealthy: ("agent_unhealthy", logging.WARNING),
    facts.AgentHealthy: ("agent_healthy", logging.INFO),
    facts.FrameworkJoined: ("framework_joined", logging.INFO),
    facts.FrameworkLeft: ("framework_left", logging.INFO),
    facts.FrameworkTornDown: ("framework_torn_down", logging.INFO),
    facts.OfferMade: ("offer_made", logging.DEBUG),
    facts.OfferEnded: ("offer_ended", logging.DEBUG),
    facts.OffersUnanswered: ("offers_unanswered", logging.INFO),
    facts.TaskMoved: ("task_moved", logging.DEBUG),
    facts.CallAnswered: ("call_answered", logging.DEBUG),
    facts.RoleChanged: ("role_changed", logging.INFO),
    facts.BudgetReached: ("budget_reached", logging.WARNING),
    facts.PreemptionBegun: ("preemption_begun", logging.INFO),
    facts.PreemptionEnded: ("preemption_ended", logging.INFO),
    facts.ExecutorMessaged: ("executor_messaged", logging.DEBUG),
    facts.UpdateHandled: ("update_handled", logging.DEBUG),
    facts.UpdateAcknowledged: ("update_acknowledged", logging.DEBUG),
    facts.TaskLined: ("task_lined", logging.DEBUG),
    facts.HoldMade: ("hold_made", logging.INFO),
    facts.HoldEnded: ("hold_ended", logging.INFO),
    facts.ReservationMade: ("reservation_made", logging.INFO),
    facts.ReservationChanged: ("reservation_changed", logging.INFO),
}
_FIELDS: Final = {kind: tuple(field.name for field in fields(kind)) for kind in EVENTS}


class FactThrottle:
    """Says which facts to note in a log."""

    def __init__(self) -> None:
        self._refusals = LogThrottle(REFUSED_AGAIN_S)
        self._health = LogThrottle(HEALTH_AGAIN_S)

    def is_due(self, fact: facts.Fact) -> bool:
        """Return whether to note a fact; most kinds always are."""
        match fact:
            case facts.AgentRefused() | facts.TasksUnproven():
                # Agents retry, and a peer can invent hostnames.
                group = crc32(fact.hostname.encode(errors="replace")) % REFUSALS_AT_ONCE
                return self._refusals.is_due((type(fact), group), time.monotonic())
            case facts.AgentUnhealthy() | facts.AgentHealthy():
                return self._health.is_due((type(fact), fact.agent_id), time.monotonic())
            case _:
                return True


def log_fact(fact: facts.Fact, throttle: FactThrottle) -> None:
    """Log `fact` with its fields if `throttle` lets it; empty texts are left out."""
    name, usual = EVENTS[type(fact)]
    is_invalid = isinstance(fact, facts.CallAnswered) and fact.outcome == "invalid"
    level = logging.WARNING if is_invalid else usual
    if not is_logged(level) or not throttle.is_due(fact):
        return
    values = ((field, getattr(fact, field)) for field in _FIELDS[type(fact)])
    shown = {
        field: value.name if isinstance(value, Enum) else value
        for field, value in values
        if value != ""
    }
    _log.log(level, name, **shown)


class TaskLog:
    """Logs the ends of tasks of one term."""

    def __init__(self, state: State, clock: Clock) -> None:
        """Look up in `state` what a fact does not contain."""
        self._frameworks, self._agents, self._clock = state.frameworks, state.agents, clock

    def happened(self, fact: facts.Fact) -> None:
        """Log a fact that is the end of a task."""
        if not (isinstance(fact, facts.TaskMoved) and fact.state.is_terminal):
            return
        framework = self._frameworks.get(fact.framework_id)
        task = None if framework is None else framework.tasks.get(fact.task_id)
        agent = self._agents.get(fact.agent_id)
        status = None if task is None else task.status
        _log.info(
            "task_ended",
            framework_id=fact.framework_id,
            framework=None if framework is None else framework.name,
            role=None if task is None else task.role,
            task_id=fact.task_id,
            agent_id=fact.agent_id or None,
            hostname=None if agent is None else agent.hostname,
            state=fact.state.name,
            reason=fact.reason.name if fact.reason else None,
            source=fact.source.name,
            exit_code=None if status is None else status.exit_code,
            signal=None if status is None else status.signal,
            message=fact.message or None,
            queued_at=self._at(None if task is None else task.submitted),
            placed_at=self._at(None if task is None else task.placed),
            started_at=time_text(task.started_ms) if task and task.started_ms else None,
            ended_at=time_text((status and status.time_ms) or self._clock.wall_ms()),
        )

    def _at(self, seconds: float | None) -> str | None:
        """Return a time of the steady clock as text."""
        if seconds is None:
            return None
        return time_text(self._clock.wall_ms() - round((self._clock.now() - seconds) * 1000))
