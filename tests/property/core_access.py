"""Rules that change the access policy and tokens."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.core.policy_commands import (
    AddMember,
    PolicyChange,
    RemoveMember,
    RemoveRule,
    SetGroup,
    SetRule,
    UpdatePolicy,
)
from croupier.master.core.token_commands import CreateToken, JoinAgent, RevokeToken
from croupier.model.access import CLUSTER as CLUSTER_OBJECT
from croupier.model.access import Action, decide
from croupier.model.ids import AgentId
from croupier.model.principal import Principal
from tests.harness.secured_world import caller, token
from tests.harness.secured_world import rule as rule_of
from tests.property.core_world import POLICY, CoreWorld, may_administer


class AccessRules(CoreWorld):
    """Callers, some of them administrators, that change rules and tokens."""

    @rule(
        changes=st.lists(
            st.sampled_from(
                [
                    RemoveRule("anna"),
                    *(SetRule(rule_of(text)) for text in POLICY),
                    AddMember("admin", "client/anna"),
                    RemoveMember("admin", "client/anna"),
                    RemoveMember("admin", "client/admin"),
                    SetGroup("admin", frozenset({"oidc:admins"})),
                ]
            ),
            max_size=2,
        ),
        who=st.sampled_from(["admin", "admin", "anna", "nobody"]),
    )
    def policy_changes(self, changes: list[PolicyChange], who: str) -> None:
        """Change rules; the caller, or the holder of a token, can change them again."""
        before, state = self.world.state.access, self.world.state
        command = UpdatePolicy(1, tuple(changes), self.wall_ms(), caller=caller(who))
        self.world.do(command)
        if before != state.access and self.is_auth_on:
            holders = [Principal(token.principal) for token in state.tokens if token.principal]
            assert any(may_administer(state, each) for each in (caller(who), *holders))
            assert decide(before, caller(who), Action.ADMINISTER, CLUSTER_OBJECT)

    @rule(
        number=st.integers(0, 5),
        kind=st.sampled_from([TokenKind.CLIENT, TokenKind.CLIENT, TokenKind.JOIN]),
        expires_s=st.sampled_from([None, 5, 50]),
        uses=st.sampled_from([None, 1]),
        who=st.sampled_from(["local-admin", "nobody"]),
    )
    def token_is_created(self, number: int, kind: TokenKind, **more: Any) -> None:
        expires = None if more["expires_s"] is None else self.wall_ms() + more["expires_s"] * 1000
        is_join = kind is TokenKind.JOIN
        made = token(
            f"0000000{number}",
            "" if is_join else "anna",
            kind,
            expires_ms=expires,
            uses_left=more["uses"] if is_join else None,
        )
        self.world.do(CreateToken(1, made, self.wall_ms(), caller(more["who"])))

    @rule(number=st.integers(0, 9), who=st.sampled_from(["local-admin", "anna", "nobody"]))
    def token_is_revoked(self, number: int, who: str) -> None:
        token_id = TokenId(f"0000000{number}")
        known = self.world.state.tokens.get(token_id)
        self.world.do(RevokeToken(1, token_id, self.wall_ms(), caller(who)))
        if self.is_auth_on and who == "nobody":
            assert self.world.state.tokens.get(token_id) == known

    @rule(number=st.integers(0, 5), pick=st.integers(0, 5), own=st.integers(6, 9))
    def agent_joins(self, number: int, pick: int, own: int) -> None:
        """Join under a new id, or under that of a known agent."""
        state = self.world.state
        known = self.known_agents[pick] if pick < len(self.known_agents) else AgentId("new")
        before, join_id = state.tokens.of_agent(known), TokenId(f"0000000{number}")
        agent = state.agents.get(known)
        was_proven = agent is not None and agent.is_authenticated
        own_id = TokenId(f"0000000{own}")
        self.world.do(JoinAgent(1, join_id, known, own_id, f"{own}" * 64, {}, self.wall_ms()))
        if was_proven or before is not None:
            assert state.tokens.of_agent(known) == before
