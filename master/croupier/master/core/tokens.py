"""All tokens of the cluster, by id and by agent.

Rule: an agent has one token at most.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import chain, islice

from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.model.ids import AgentId

# Most expired tokens that one command forgets.
EXPIRED_AT_ONCE = 100


class Tokens:
    """The tokens that can be used, and those that have expired but are not forgotten yet."""

    def __init__(self) -> None:
        # Agents have many, which never expire, so both kinds are apart.
        self._others: dict[TokenId, TokenRecord] = {}
        self._agents: dict[TokenId, TokenRecord] = {}
        self._of_agents: dict[AgentId, TokenId] = {}

    def __len__(self) -> int:
        return len(self._others) + len(self._agents)

    def __iter__(self) -> Iterator[TokenRecord]:
        return chain(self._others.values(), self._agents.values())

    def get(self, token_id: TokenId) -> TokenRecord | None:
        """Return the token of that id. It may have expired."""
        return self._others.get(token_id) or self._agents.get(token_id)

    def of_agent(self, agent_id: AgentId) -> TokenRecord | None:
        """Return the agent's own token."""
        token_id = self._of_agents.get(agent_id)
        return None if token_id is None else self._agents[token_id]

    def count(self, kind: TokenKind) -> int:
        """Return the number of tokens: of agents, or else of all other kinds together."""
        return len(self._agents if kind is TokenKind.AGENT else self._others)

    def put(self, token: TokenRecord) -> None:
        """Add a token, or replace the one of its id, which is of the same kind."""
        agent_id = token.agent_id
        if agent_id is None:
            self._others[token.token_id] = token
            return
        assert self._of_agents.get(agent_id, token.token_id) == token.token_id
        self._agents[token.token_id] = token
        self._of_agents[agent_id] = token.token_id

    def remove(self, token_id: TokenId) -> None:
        """Forget a token."""
        token = self._agents.pop(token_id, None) or self._others.pop(token_id)
        if token.agent_id is not None:
            del self._of_agents[token.agent_id]

    def expired(self, now_ms: int) -> list[TokenId]:
        """Return at most `EXPIRED_AT_ONCE` tokens that have expired. O(tokens but agents')."""
        found = (each.token_id for each in self._others.values() if each.is_expired(now_ms))
        return list(islice(found, EXPIRED_AT_ONCE))

    def used_up(self) -> TokenId | None:
        """Return the oldest join token without uses left. O(tokens but agents')."""
        return next((each.token_id for each in self._others.values() if each.uses_left == 0), None)

    def of_unknown_agent(self, known: Container[AgentId]) -> TokenId | None:
        """Return the oldest token of an agent that is not `known`. O(tokens of agents)."""
        return next((each for agent, each in self._of_agents.items() if agent not in known), None)
