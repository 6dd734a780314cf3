"""A digest of all decisions of a run: equal decisions give an equal digest.

It covers every effect of every event in order: messages with their sessions, records, closed
sessions and facts, but only the kind of an operator's answer. It leaves out legal commands of
tasks, but not illegal ones, such as the empty command of a slimmed task.

The outcomes are the decisions in short: for people, and for replays of a log without its start.

["agent", AGENT]                              the agent of a REGISTER
["framework", FRAMEWORK]                      the framework of a SUBSCRIBE
["agent-left", AGENT, suspected|disconnected|unreachable|stopped|gone]
["agent-operated", AGENT, drain|deactivate|reactivate|gone]
["agent-drained", AGENT]                      its last task has ended
["framework-left", FRAMEWORK, disconnected|removed]
["offer", OFFER, FRAMEWORK, ROLE, AGENT]      made, in the order of the grants
["task", FRAMEWORK, TASK, STATE, AGENT, REASON]  launched (STAGING), ended, or given up
["role", ROLE]                                its settings were changed
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from croupier.master.core import facts
from croupier.master.core.effects import AccessChanged, Answer, Close, Effect, Happened, Save, Send
from croupier.master.core.messages import Offered
from croupier.master.eventlog.codec import DIGESTED, answer_tag, as_json
from croupier.master.eventlog.lines import Outcome
from croupier.model.ids import OfferId, Role
from croupier.model.task import Source

_LENGTH = 16


def outcomes_of(effects: Sequence[Effect]) -> list[Outcome]:
    """Return the outcomes of these effects."""
    outcomes: list[Outcome] = []
    roles: dict[OfferId, Role] = {}
    for effect in effects:
        if isinstance(effect, Happened):
            outcome = _outcome(effect.fact, roles)
            if outcome is not None:
                outcomes.append(outcome)
        elif isinstance(effect, Send) and isinstance(effect.message, Offered):
            roles[effect.message.offer_id] = effect.message.role
    return outcomes


def _outcome(fact: facts.Fact, roles: dict[OfferId, Role]) -> Outcome | None:
    match fact:
        case facts.TaskMoved():
            if not fact.state.is_terminal and fact.source is not Source.MASTER:
                return None
            place = fact.framework_id, fact.task_id, fact.state.name, fact.agent_id
            return ("task", *place, fact.reason.name)
        case facts.OfferMade(offer_id):
            return ("offer", offer_id, fact.framework_id, roles[offer_id], fact.agent_id)
        case facts.AgentJoined(agent_id):
            return ("agent", agent_id)
        case facts.FrameworkJoined(framework_id):
            return ("framework", framework_id)
        case facts.AgentLeft(agent_id):
            return ("agent-left", agent_id, fact.why)
        case facts.AgentOperated(agent_id):
            return ("agent-operated", agent_id, fact.action)
        case facts.AgentDrained(agent_id):
            return ("agent-drained", agent_id)
        case facts.FrameworkLeft(framework_id):
            return ("framework-left", framework_id, fact.why)
        case facts.RoleChanged(role):
            return ("role", role)
        case (
            facts.AgentRefused()
            | facts.TasksUnproven()
            | facts.AgentUnhealthy()
            | facts.AgentHealthy()
            | facts.FrameworkTornDown()
            | facts.OfferEnded()
            | facts.OffersUnanswered()
            | facts.CallAnswered()
            | facts.PreemptionBegun()
            | facts.PreemptionEnded()
            | facts.UpdateHandled()
            | facts.UpdateAcknowledged()
            | facts.TaskLined()
        ):
            return None


class Digest:
    """The digest of a run."""

    def __init__(self) -> None:
        self._hash = sha256()
        self._encode = DIGESTED.encoder(Send | Close | Save | Happened | AccessChanged)

    def add(self, effects: Sequence[Effect]) -> str:
        """Add the decisions on one event, and return the digest."""
        document = [
            [effect.request, answer_tag(effect.result)]
            if isinstance(effect, Answer)
            else self._encode(effect)
            for effect in effects
        ]
        self._hash.update(as_json(document))
        return str(self)

    def __str__(self) -> str:
        return self._hash.hexdigest()[:_LENGTH]
