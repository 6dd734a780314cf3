"""Principals: the names of callers.

A name is `KIND/NAME`: `client/alice`, `agent/A1`, `master/m1`, or `oidc/SUBJECT` for a subject of
an identity provider. Kinds keep the identities of different credentials apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType

from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, check_id

PrincipalName = NewType("PrincipalName", str)

MAX_NAME_BYTES: Final = 320


class PrincipalKind(Enum):
    """Kind of a principal, the first part of its name."""

    CLIENT = "client"
    AGENT = "agent"
    MASTER = "master"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a caller.

    Attributes:
        name: `KIND/NAME`; empty while authentication is off.
        groups: groups that its credential names, such as those of an identity provider. Groups
            of the policy are not among them.
    """

    name: PrincipalName
    groups: frozenset[str] = frozenset()

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller is not authenticated."""
        return not self.name

    @property
    def agent_id(self) -> AgentId | None:
        """The id of the agent that this principal is; None for other principals."""
        prefix = f"{PrincipalKind.AGENT.value}/"
        return AgentId(self.name[len(prefix) :]) if self.name.startswith(prefix) else None

    def __str__(self) -> str:
        return self.name or "anonymous"


ANONYMOUS: Final = Principal(PrincipalName(""))


def principal_name(kind: PrincipalKind, name: str) -> PrincipalName:
    """Return the name of a principal of `kind`; raises InvalidRequest if `name` is illegal."""
    return check_principal(f"{kind.value}/{name}")


def check_principal(text: str) -> PrincipalName:
    """Return `text` if it is the name of a principal.

    The name of an agent is its id. Subjects of identity providers may hold slashes and colons.
    Raises InvalidRequest if it is not `KIND/NAME`, is too long, or holds white space or control
    characters.
    """
    kind, slash, name = text.partition("/")
    known = [each.value for each in PrincipalKind]
    if not slash or kind not in known:
        raise InvalidRequest(f"{text[:80]!r} is no principal: KIND/NAME, KIND one of {known}")
    if not name or len(text.encode(errors="replace")) > MAX_NAME_BYTES:
        raise InvalidRequest(f"the name of a principal has 1 to {MAX_NAME_BYTES} bytes")
    if kind == PrincipalKind.OIDC.value:
        if not name.isprintable() or any(char.isspace() for char in name):
            raise InvalidRequest(f"principal {text[:80]!r} holds an illegal character")
    else:
        check_id("principal", name)
    return PrincipalName(text)
