"""What operators can do with an agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

ActionName = Literal["drain", "deactivate", "reactivate", "gone"]


@dataclass(frozen=True, slots=True)
class Drain:
    """Have the agent's tasks ended, and offer it no more.

    Attributes:
        grace_ms: the longest that a task is given to end by itself; None: its own grace.
    """

    grace_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Offer the agent no more; its tasks run on."""


@dataclass(frozen=True, slots=True)
class Reactivate:
    """Offer the agent again, and end its drain."""


@dataclass(frozen=True, slots=True)
class MarkGone:
    """Take the agent and its tasks for dead; it never returns under its id."""


AgentAction = Drain | Deactivate | Reactivate | MarkGone


def action_name(action: AgentAction) -> ActionName:
    """A word for the kind of action, for logs and metrics."""
    match action:
        case Drain():
            return "drain"
        case Deactivate():
            return "deactivate"
        case Reactivate():
            return "reactivate"
        case MarkGone():
            return "gone"
        case _:
            assert_never(action)
