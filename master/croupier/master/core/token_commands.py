"""Commands for tokens: made, revoked, and given to agents that join.

Rule: the core gets the hash of a secret, never the secret. It has no clock, so each command brings
the time along.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace

from croupier.master.core.access_records import ForgetToken, TokenId, TokenKind, TokenRecord
from croupier.master.core.agents import Agent
from croupier.master.core.authorisation import require_administer
from croupier.master.core.effects import AccessChanged, Close, Effect, Save
from croupier.master.core.events import OperatorCommand
from croupier.master.core.on_agent import disconnect
from croupier.master.core.policy_commands import check_administered, checked_description
from croupier.master.core.state import State
from croupier.model import errors, principal
from croupier.model.access import CLUSTER, LOCAL_ADMIN, Action, decide
from croupier.model.attributes import MAX_ATTRIBUTES, Attributes, parse_attributes
from croupier.model.ids import AgentId, check_id

_TOKEN_ID = re.compile(r"[0-9a-f]{8}\Z", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
# The year 2286; later times do not fit everywhere.
_LAST_MS = 10**13


@dataclass(frozen=True, slots=True)
class CreateToken(OperatorCommand[TokenRecord]):
    """Store a token that its creator has made. A repeated command changes nothing.

    `token`: without `created_ms` and `created_by`, which the command sets.
    """

    token: TokenRecord
    now_ms: int
    caller: principal.Principal = principal.ANONYMOUS

    def execute(self, state: State, _now: float) -> Generator[Effect, None, TokenRecord]:
        """Store the token.

        Raises:
            PermissionDenied: if the caller may not administer the cluster.
            InvalidRequest: if the token is malformed.
            Conflict: if its id is taken, its agent has another token, or there are too many.
        """
        require_administer(state, self.caller)
        token = replace(self.token, created_ms=self.now_ms, created_by=self.caller.name)
        _check_token(token, self.now_ms)
        known = state.tokens.get(token.token_id)
        if known is not None:
            if known.hash == token.hash and known.kind is token.kind:
                return known
            raise errors.Conflict(f"there is another token {token.token_id}; make a new one")
        agent_id = token.agent_id
        if agent_id is not None and state.tokens.of_agent(agent_id) is not None:
            raise errors.Conflict(f"agent {agent_id} has a token; revoke that one first")
        yield from _add(state, token, self.now_ms)
        return token


@dataclass(frozen=True, slots=True)
class RevokeToken(OperatorCommand[TokenRecord]):
    """Forget a token; its sessions and streams end. Its principal may revoke it, too.

    `credential`: the caller's own token; empty if it has proven itself otherwise.
    """

    token_id: TokenId
    now_ms: int
    caller: principal.Principal = principal.ANONYMOUS
    credential: TokenId = TokenId("")  # noqa: RUF009

    def execute(self, state: State, now: float) -> Generator[Effect, None, TokenRecord]:
        """Revoke the token.

        Raises:
            PermissionDenied: if the token is another principal's, and the caller may not administer
                the cluster.
            NotFound: if there is none.
            Conflict: if no known principal could change the policy any more.
        """
        token = state.tokens.get(self.token_id)
        if token is None or not token.principal or token.principal != self.caller.name:
            require_administer(state, self.caller)
        if token is None:
            raise errors.NotFound(f"no token {self.token_id[:80]!r}")
        if decide(state.access, principal.Principal(token.principal), Action.ADMINISTER, CLUSTER):
            proven = principal.ANONYMOUS if self.credential == self.token_id else self.caller
            check_administered(state, state.access, proven, self.now_ms, self.token_id)
        yield from forget_tokens(state, [self.token_id])
        agent = state.agents.get(token.agent_id) if token.agent_id is not None else None
        if agent is not None:
            yield from _dismiss(state, agent, now)
        return token


@dataclass(frozen=True, slots=True)
class JoinAgent(OperatorCommand[TokenRecord]):
    """Give an agent a token of its own. A repeated command changes nothing.

    Attributes:
        join_token: the token that authenticates the caller.
        token_id, token_hash: of the token that the agent has made.
    """

    join_token: TokenId
    agent_id: AgentId
    token_id: TokenId
    token_hash: str = field(repr=False)
    attributes: Attributes
    now_ms: int

    def execute(self, state: State, _now: float) -> Generator[Effect, None, TokenRecord]:
        """Bind the token to the agent's id.

        Raises:
            Unauthenticated: if the join token is unknown, expired or has no uses left.
            PermissionDenied: if the agent does not have an attribute that the join token requires.
            Removed: if the agent was declared gone.
            Conflict: if the agent's id is taken.
        """
        join = state.tokens.get(self.join_token)
        if join is None or join.kind is not TokenKind.JOIN:
            raise errors.Unauthenticated("no such join token")
        name = principal.principal_name(
            principal.PrincipalKind.AGENT, check_id("agent", self.agent_id)
        )
        own = state.tokens.of_agent(self.agent_id)
        if own is not None and (own.token_id, own.hash) == (self.token_id, self.token_hash):
            return own
        token = TokenRecord(
            self.token_id,
            TokenKind.AGENT,
            name,
            self.token_hash,
            self.now_ms,
            f"join:{join.token_id}",
            attributes=join.attributes,
            max_resources=join.max_resources,
        )
        _check_token(token, self.now_ms)
        _check_join(state, join, self)
        yield from _add(state, token, self.now_ms)
        if join.uses_left is not None:
            used = replace(join, uses_left=join.uses_left - 1)
            state.tokens.put(used)
            yield Save(used)
        return token


def _dismiss(state: State, agent: Agent, now: float) -> Iterator[Effect]:
    """End the session of an agent without its token, and let it join again."""
    if agent.session is not None:
        yield Close(agent.session, errors.Unauthenticated("the agent's token was revoked"))
        yield from disconnect(state, agent, "its token was revoked", now)
    if agent.is_authenticated:
        agent.is_authenticated = False
        yield Save(agent.record())


def _check_join(state: State, join: TokenRecord, event: JoinAgent) -> None:
    agent_id = event.agent_id
    if join.is_expired(event.now_ms) or join.uses_left == 0:
        raise errors.Unauthenticated("the join token has expired, or has no uses left")
    if missing := join.missing_in(event.attributes):
        raise errors.PermissionDenied(f"the join token is for agents with attribute {missing[0]}")
    if agent_id in state.gone:
        # As REGISTER is answered: the agent takes another id.
        raise errors.Removed(f"agent {agent_id} was declared gone")
    agent = state.agents.get(agent_id)
    is_known = agent is not None and agent.is_authenticated
    if is_known or state.tokens.of_agent(agent_id) is not None:
        raise errors.Conflict(
            f"agent {agent_id} has another credential; use that one, or revoke its token"
        )
    if state.tokens.get(event.token_id) is not None:
        raise errors.Conflict(f"there is another token {event.token_id}; make a new one")


def _check_token(token: TokenRecord, now_ms: int) -> None:
    """Check a token before it is stored; raises InvalidRequest if it is malformed."""
    if not _TOKEN_ID.match(token.token_id) or not _HASH.match(token.hash):
        raise errors.InvalidRequest("a token has an id of 8 and a hash of 64 hexadecimal digits")
    if token.expires_ms is not None and not now_ms < token.expires_ms < _LAST_MS:
        raise errors.InvalidRequest("the token's expiry has passed already, or is too late")
    checked_description(token.description)
    if token.kind is TokenKind.JOIN:
        _check_join_token(token)
        return
    kind = principal.PrincipalKind(token.kind.value)
    is_bound = bool(token.attributes or token.max_resources)
    if token.uses_left is not None or (is_bound and kind is not principal.PrincipalKind.AGENT):
        raise errors.InvalidRequest("only join tokens have uses, attributes and resources")
    if not principal.check_principal(token.principal).startswith(f"{kind.value}/"):
        raise errors.InvalidRequest(f"such a token is for a principal {kind.value}/NAME")
    if kind is principal.PrincipalKind.AGENT and token.expires_ms is not None:
        raise errors.InvalidRequest(
            "an agent's token does not expire; revoke it and let the agent join"
        )
    if token.principal == LOCAL_ADMIN:
        raise errors.InvalidRequest(f"{LOCAL_ADMIN} has its token from --admin-token-file")


def _check_join_token(token: TokenRecord) -> None:
    if token.principal:
        raise errors.InvalidRequest("a join token has no principal")
    if token.uses_left is not None and not 1 <= token.uses_left < 2**31:
        raise errors.InvalidRequest("a join token has at least one use")
    if len(token.attributes) > MAX_ATTRIBUTES:
        raise errors.InvalidRequest(f"a join token has at most {MAX_ATTRIBUTES} attributes")
    for text in token.attributes:
        if len(parsed := parse_attributes(text)) != 1 or text in token.missing_in(parsed):
            raise errors.InvalidRequest(f"{text[:80]!r} is no attribute: NAME:VALUE")


def forget_tokens(state: State, token_ids: list[TokenId]) -> Iterator[Effect]:
    """Forget tokens, and end the sessions and streams that were opened with them."""
    yield from _forget(state, token_ids)
    yield AccessChanged(tuple(token_ids))


def _forget(state: State, token_ids: list[TokenId]) -> Iterator[Effect]:
    """Forget tokens without open streams, or whose streams the shell has ended."""
    for token_id in token_ids:
        state.tokens.remove(token_id)
        yield Save(ForgetToken(token_id))


def _add(state: State, token: TokenRecord, now_ms: int) -> Iterator[Effect]:
    """Store a new token, and forget some useless ones; raises Conflict if there are too many."""
    is_agent = token.kind is TokenKind.AGENT
    most = state.settings.agent_tokens if is_agent else state.settings.tokens
    count = state.tokens.count(token.kind)
    useless = [] if is_agent else state.tokens.expired(now_ms)
    if count - len(useless) >= most:
        spare = state.tokens.of_unknown_agent(state.agents) if is_agent else state.tokens.used_up()
        useless += [spare] if spare is not None and spare not in useless else []
    if count - len(useless) >= most:
        raise errors.Conflict(f"there are {count} tokens; revoke some first")
    yield from _forget(state, useless)
    state.tokens.put(token)
    yield Save(token)
