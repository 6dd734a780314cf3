"""All tokens of the cluster, by id and by agent.

Rule: an agent has one token at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.model.ids import AgentId

# Most expired tokens that one command forgets.
EXPIRED_AT_ONCE = 100


class Tokens:
    """The tokens that can be used, and those that have expired but are not forgotten yet."""

    def __init__(self) -> None:
        self._tokens: dict[TokenId, TokenRecord] = {}
        self._of_agents: dict[AgentId, TokenId] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[TokenRecord]:
        return iter(self._tokens.values())

    def get(self, token_id: TokenId) -> TokenRecord | None:
        """Return the token of that id. It may have expired."""
        return self._tokens.get(token_id)

    def of_agent(self, agent_id: AgentId) -> TokenRecord | None:
        """Return the agent's own token. It may have expired."""
        token_id = self._of_agents.get(agent_id)
        return None if token_id is None else self._tokens[token_id]

    def count(self, kind: TokenKind) -> int:
        """Return the number of tokens: of agents, or else of all other kinds together."""
        agents = len(self._of_agents)
        return agents if kind is TokenKind.AGENT else len(self._tokens) - agents

    def put(self, token: TokenRecord) -> None:
        """Add a token, or replace the one of its id."""
        self._tokens[token.token_id] = token
        if token.agent_id is not None:
            assert self._of_agents.get(token.agent_id, token.token_id) == token.token_id
            self._of_agents[token.agent_id] = token.token_id

    def remove(self, token_id: TokenId) -> None:
        """Forget a token."""
        token = self._tokens.pop(token_id)
        if token.agent_id is not None:
            del self._of_agents[token.agent_id]

    def expired(self, now_ms: int) -> list[TokenId]:
        """Return at most `EXPIRED_AT_ONCE` tokens that have expired. O(tokens)."""
        found = (each.token_id for each in self if each.is_expired(now_ms))
        return list(islice(found, EXPIRED_AT_ONCE))

    def spent(self) -> TokenId | None:
        """Return the oldest join token without uses left. O(tokens)."""
        return next((each.token_id for each in self if each.uses_left == 0), None)

    def check(self) -> None:
        """Assert that both indexes agree."""
        bound = {t.agent_id: t.token_id for t in self if t.agent_id is not None}
        assert bound == self._of_agents
        assert all(token.token_id == key for key, token in self._tokens.items())
