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

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from croupier.master.core import facts
from croupier.master.core.effects import AccessChanged, Answer, Close, Effect, Happened, Save, Send
from croupier.master.core.messages import Offered
from croupier.master.eventlog.codec import DIGESTED, answer_tag, as_json
from croupier.master.eventlog.lines import Outcome
from croupier.model.ids import OfferId, Role
from croupier.model.task import Source

_LENGTH = 16
# The word and the fields of facts; all others have no outcome.
_NAMED: Final[Mapping[type, tuple[str, ...]]] = {
    facts.AgentJoined: ("agent", "agent_id"),
    facts.FrameworkJoined: ("framework", "framework_id"),
    facts.AgentLeft: ("agent-left", "agent_id", "why"),
    facts.AgentOperated: ("agent-operated", "agent_id", "action"),
    facts.AgentDrained: ("agent-drained", "agent_id"),
    facts.FrameworkLeft: ("framework-left", "framework_id", "why"),
    facts.RoleChanged: ("role", "role"),
}


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
    if isinstance(fact, facts.TaskMoved):
        if not fact.state.is_terminal and fact.source is not Source.MASTER:
            return None
        place = fact.framework_id, fact.task_id, fact.state.name, fact.agent_id
        return ("task", *place, fact.reason.name)
    if isinstance(fact, facts.OfferMade):
        return ("offer", fact.offer_id, fact.framework_id, roles[fact.offer_id], fact.agent_id)
    word, *names = _NAMED.get(type(fact), ("",))
    return (word, *(getattr(fact, name) for name in names)) if word else None


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
