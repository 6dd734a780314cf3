"""Records of access: groups, rules, tokens and revoked keys.

Rule: a token's record holds the hash of its secret, never the secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from croupier.model.access import KeyId, Rule
from croupier.model.attributes import Attributes, attribute_text
from croupier.model.ids import AgentId
from croupier.model.principal import PrincipalKind, PrincipalName
from croupier.model.resources import NOTHING, Resources

# The public part of a token: 8 hexadecimal digits.
TokenId = NewType("TokenId", str)


class TokenKind(Enum):
    """Kind of a token, by what it proves.

    CLIENT: its bearer is `client/NAME`. JOIN: its bearer may give an agent a token of its own.
    AGENT: its bearer is `agent/ID`.
    """

    CLIENT = "client"
    JOIN = "join"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group; the record of a built-in group replaces its default members."""

    name: str
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """A rule that an administrator made."""

    rule: Rule

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token; times are milliseconds since the epoch.

    Attributes:
        principal: the principal that it proves; empty for a join token.
        hash: SHA-256 of its secret, in hexadecimal digits.
        created_by: the principal that created it, or `join:ID` for the join token.
        expires_ms: None: it does not expire.
        uses_left: how many more agents may join with it; None: any number.
        attributes: `NAME:VALUE`; an agent that joined with it must have all of them.
        max_resources: the most of each named scalar that an agent which joined with it may have.
    """

    token_id: TokenId
    kind: TokenKind
    principal: PrincipalName
    hash: str = field(repr=False)
    created_ms: int
    created_by: str = ""
    expires_ms: int | None = None
    uses_left: int | None = None
    attributes: tuple[str, ...] = ()
    description: str = ""
    max_resources: Resources = NOTHING

    def is_expired(self, now_ms: int) -> bool:
        """Return whether it has expired; `now_ms`: milliseconds since the epoch."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def missing_in(self, attributes: Attributes) -> list[str]:
        """Return those of its attributes that are not among `attributes`."""
        facts = {f"{name}:{attribute_text(value)}" for name, value in attributes.items()}
        return [each for each in self.attributes if each not in facts]

    @property
    def agent_id(self) -> AgentId | None:
        """The agent that it is bound to; None for other kinds."""
        prefix = f"{PrincipalKind.AGENT.value}/"
        if self.kind is not TokenKind.AGENT:
            return None
        return AgentId(self.principal.removeprefix(prefix))


@dataclass(frozen=True, slots=True)
class RevokedKeyRecord:
    """The key of certificates that are refused; `description` is for people."""

    key_id: KeyId
    description: str = ""


@dataclass(frozen=True, slots=True)
class ForgetGroup:
    """Deletion of a group's record: a built-in group has its default members again."""

    name: str


@dataclass(frozen=True, slots=True)
class ForgetRule:
    """Deletion of a rule."""

    name: str


@dataclass(frozen=True, slots=True)
class ForgetToken:
    """Deletion of a token that was revoked or has expired."""

    token_id: TokenId


@dataclass(frozen=True, slots=True)
class ForgetRevokedKey:
    """Deletion of a revoked key, whose certificates are accepted again."""

    key_id: KeyId


AccessRecord = (
    GroupRecord
    | RuleRecord
    | TokenRecord
    | RevokedKeyRecord
    | ForgetGroup
    | ForgetRule
    | ForgetToken
    | ForgetRevokedKey
)
