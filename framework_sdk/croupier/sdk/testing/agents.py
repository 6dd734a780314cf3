"""The agents of a fake master: each has what it offers, and what its tasks use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from croupier.master.core.agents import Agent
from croupier.master.core.effects import SessionId
from croupier.master.core.events import Register
from croupier.model.errors import Conflict
from croupier.model.ids import AgentId
from croupier.model.isolation import Feature, known_features
from croupier.model.resources import Resources
from croupier.sdk.testing.core import Core


@dataclass(frozen=True, slots=True)
class Description:
    """What an agent says of itself.

    Attributes:
        isolation: features that it can enforce, such as `memory`; None is all.
    """

    agent_id: str = "a1"
    hostname: str = "h1"
    attributes: Mapping[str, str] = field(default_factory=dict)
    http_address: str = ""
    isolation: Iterable[str] | None = None


def with_room(core: Core, described: Description, amount: Resources) -> Agent:
    """Return the connected agent with `amount` free, whatever it had free before.

    Raises:
        Conflict: if it has offered or runs some of these ports or items already.
        InvalidRequest: if the description is malformed.
    """
    allocator = core.state.allocator
    isolation = described.isolation
    features = known_features(isolation) if isolation is not None else frozenset(Feature)
    said = (described.hostname, dict(described.attributes), described.http_address, features)
    agent_id = AgentId(described.agent_id)
    register = Register(SessionId(0), agent_id, described.hostname, amount, *said[1:3])
    agent = core.agent(replace(register, features=features))
    try:
        total = agent.total - allocator.queries.free(agent.agent_id) + amount
    except ValueError as error:
        raise Conflict(f"agent {agent_id} has that in use: {error}") from None
    allocator.change_agent(agent.agent_id, total, *said[:2], features)
    agent.total = total
    if said != (agent.hostname, agent.attributes, agent.http_address, agent.features):
        agent.introduce(*said)
    return agent
