"""An offer to a framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.model.clock import Clock
from croupier.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Offer:
    """Resources of one agent, promised to this framework until the lease ends.

    Attributes:
        attributes: of the agent, in text form.
        role: the role whose share the resources are charged to.
        http_address: HOST:PORT of the agent's HTTP server, which serves the output of
            tasks, or https://HOST:PORT if it has TLS; empty if it has none.
        expires_at: end of the lease, seconds on `clock`.
        clock: for `expires_in_s`.
        isolation: features that the agent can enforce, such as `memory` or `images`. Only tasks
            whose `needs` are among them are launched on it.
    """

    id: str
    agent_id: str
    hostname: str
    resources: Resources
    attributes: Mapping[str, str]
    role: str
    http_address: str
    expires_at: float = field(repr=False)
    clock: Clock = field(repr=False, compare=False)
    isolation: frozenset[str] = frozenset()

    @property
    def expires_in_s(self) -> float:
        """Seconds until the lease ends; 0 once it has."""
        return max(0.0, self.expires_at - self.clock.now())
