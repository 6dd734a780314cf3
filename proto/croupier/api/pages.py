"""Pages of lists.

Each holds the `items`, and in `next` the token of the next page; None: it is the last.
"""

from __future__ import annotations

from typing import TypedDict

from croupier.api.agents import Agent
from croupier.api.frameworks import Framework
from croupier.api.masters import KnownMaster
from croupier.api.roles import Role
from croupier.api.tasks import Offer, Task


class AgentPage(TypedDict):
    """A page of agents."""

    items: list[Agent]
    next: str | None


class FrameworkPage(TypedDict):
    """A page of frameworks."""

    items: list[Framework]
    next: str | None


class MasterPage(TypedDict):
    """All known masters, the leader first; `next` is always None."""

    items: list[KnownMaster]
    next: str | None


class OfferPage(TypedDict):
    """A page of outstanding offers."""

    items: list[Offer]
    next: str | None


class RolePage(TypedDict):
    """A page of roles."""

    items: list[Role]
    next: str | None


class TaskPage(TypedDict):
    """A page of tasks."""

    items: list[Task]
    next: str | None
