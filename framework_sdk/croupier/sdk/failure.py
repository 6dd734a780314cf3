"""The loss of an agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """A lost agent. Status updates report the state of each of its tasks."""

    agent_id: str
    hostname: str = ""
    message: str = ""
