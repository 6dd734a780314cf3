"""The master's log of facts: one line each, with its ids. `task_log` has the ends of tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Final

from croupier.master.core import facts
from croupier.master.fact_throttle import FactThrottle
from croupier.process.logging import get_logger, is_logged

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
    facts.PreemptionBegun: ("preemption_begun", logging.INFO),
    facts.PreemptionEnded: ("preemption_ended", logging.INFO),
    facts.UpdateHandled: ("update_handled", logging.DEBUG),
    facts.UpdateAcknowledged: ("update_acknowledged", logging.DEBUG),
    facts.TaskLined: ("task_lined", logging.DEBUG),
}
_FIELDS: Final = {kind: tuple(field.name for field in fields(kind)) for kind in EVENTS}


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
