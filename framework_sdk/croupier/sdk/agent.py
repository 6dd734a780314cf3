"""What a framework knows of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that made an offer to the framework, or runs a task that it submitted.

    Attributes:
        http_address: HOST:PORT of its HTTP server, which serves the output of tasks.
        attributes: for constraints, as text.
        isolation: what it can enforce or measure, such as `memory`.
    """

    agent_id: str
    hostname: str
    http_address: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    isolation: frozenset[str] = frozenset()
