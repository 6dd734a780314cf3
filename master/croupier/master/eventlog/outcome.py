"""The outcomes of an event, in short: for people, and for replays of a log without its start.

["agent", AGENT]                              the agent that a REGISTER is of
["framework", FRAMEWORK]                      the framework that a SUBSCRIBE is of
["agent-left", AGENT, suspected|disconnected|unreachable|stopped|gone]
["agent-operated", AGENT, drain|deactivate|reactivate|gone]
["agent-drained", AGENT]                      its last task has ended
["framework-left", FRAMEWORK, disconnected|removed]
["offer", OFFER, FRAMEWORK, ROLE, AGENT]      made, in the order of the deals
["task", FRAMEWORK, TASK, STATE, AGENT]       launched (STAGING), ended, or given up
["role", ROLE]                                its settings were changed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from croupier.master.core.effects import Effect, Happened, Send
from croupier.master.core.facts import (
    AgentDrained,
    AgentJoined,
    AgentLeft,
    AgentOperated,
    Fact,
    FrameworkJoined,
    FrameworkLeft,
    OfferMade,
    RoleChanged,
    TaskMoved,
)
from croupier.master.core.messages import Offered
from croupier.master.eventlog.lines import Deed
from croupier.master.eventlog.tags import EVENT_LOG
from croupier.model.ids import OfferId, Role
from croupier.model.task import Reason, Source, TaskState

_STATES: Final = EVENT_LOG.members(TaskState)
_REASONS: Final = EVENT_LOG.members(Reason)


def outcome(effects: Sequence[Effect]) -> list[Deed]:
    """Return the outcomes of these effects."""
    deeds: list[Deed] = []
    roles: dict[OfferId, Role] = {}
    for effect in effects:
        if isinstance(effect, Happened):
            deed = _deed(effect.fact, roles)
            if deed is not None:
                deeds.append(deed)
        elif isinstance(effect, Send) and isinstance(effect.message, Offered):
            roles[effect.message.offer_id] = effect.message.role
    return deeds


def _deed(fact: Fact, roles: dict[OfferId, Role]) -> Deed | None:
    match fact:
        case TaskMoved():
            if not fact.state.is_terminal and fact.source is not Source.MASTER:
                return None
            state, reason = _STATES[fact.state], _REASONS[fact.reason]
            return ("task", fact.framework_id, fact.task_id, state, fact.agent_id, reason)
        case OfferMade(offer_id):
            return ("offer", offer_id, fact.framework_id, roles[offer_id], fact.agent_id)
        case AgentJoined(agent_id):
            return ("agent", agent_id)
        case FrameworkJoined(framework_id):
            return ("framework", framework_id)
        case AgentLeft(agent_id):
            return ("agent-left", agent_id, fact.why)
        case AgentOperated(agent_id):
            return ("agent-operated", agent_id, fact.action)
        case AgentDrained(agent_id):
            return ("agent-drained", agent_id)
        case FrameworkLeft(framework_id):
            return ("framework-left", framework_id, fact.why)
        case RoleChanged(role):
            return ("role", role)
        case _:
            return None
