"""One event of the journal. Its text is made when a reader first asks for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from croupier.master.core.facts import Fact
from croupier.master.services.visibility import Visibility
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role

_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class TermBegan:
    """The master began to lead. Every caller may view this, so it has nothing else."""

    master_id: str


@dataclass(frozen=True, slots=True)
class OffersLapsed:
    """Offers of one framework that were rescinded or expired within about a second."""

    framework_id: FrameworkId
    rescinded: int
    expired: int


@dataclass(frozen=True, slots=True)
class Preempting:
    """As `facts.PreemptionBegun`, with numbers of tasks and offers in place of their ids."""

    framework_id: FrameworkId
    role: Role
    agent_id: AgentId
    room: str
    tasks: int
    offers: int
    message: str


Happening = Fact | TermBegan | OffersLapsed | Preempting


@dataclass(slots=True, eq=False)
class JournalEntry:
    """An event.

    Attributes:
        number: counts up within the term, from 1.
        at: when it was recorded, in seconds on the master's monotonic clock.
        wall_ms: the same in milliseconds since 1970, for people.
        what: what happened.
        roles: the roles in which it may be viewed; empty if it is about no framework.
        owner: the principal that may view it without a rule; empty if there is none.
        names: of its framework and of its agent's machine, by their ids.
        line: what readers get, once it was made; see `lines`.
    """

    number: int
    at: float
    wall_ms: int
    what: Happening
    roles: tuple[Role, ...]
    owner: str
    names: Mapping[str, str]
    line: object = None


def may_view(entry: JournalEntry, visible: Visibility) -> bool:
    """Return whether a caller may view the event: its framework in a role, or its agent."""
    what = entry.what
    if isinstance(what, TermBegan):
        return True
    if entry.roles:
        return any(visible.in_role(role, entry.owner) for role in entry.roles)
    role: Role | None = getattr(what, "role", None)
    if role is not None:
        return visible.has_role(role)
    is_of_agent = not hasattr(what, "framework_id")
    agent_id: AgentId | None = getattr(what, "agent_id", None) if is_of_agent else None
    # An agent without an id, or a framework that is forgotten: for those who may view all.
    return visible.has_agent(agent_id) if agent_id else visible.has_all


def id_text(epoch: int, number: int) -> str:
    """Return the id of an event: EPOCH-NUMBER."""
    return f"{epoch}-{number}"


def parse_id(text: str) -> tuple[int, int]:
    """Return the epoch and the number of an event's id.

    Raises:
        InvalidRequest: if it is no id of an event.
    """
    epoch, _, number = text.partition("-")
    if not _ID.fullmatch(text):
        raise InvalidRequest("not the id of an event: it has the form EPOCH-NUMBER, such as 3-1042")
    return int(epoch), int(number)
