"""Flags of a master for the agents that it admits, and the tasks that they list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from croupier.master.core.settings import LARGEST_AGENT
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.process.cli import Seconds, read_by


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFlags:
    """What a master believes of a registering agent.

    Raises:
        InvalidRequest: if a value is out of bounds.
    """

    max_agent_resources: Annotated[Resources, read_by(Resources.parse)] = LARGEST_AGENT
    """Most resources that an agent may register with, such as 'cpus:256;mem:2TB'. An agent with
    more is refused. A name that is not given keeps its default, or has no bound."""

    adopt_unproven: Seconds = 0.0
    """Time after the start in which tasks that agents list are adopted without proof that a master
    launched them, such as 10m. For a store that was lost; see docs/high-availability.md."""

    def __post_init__(self) -> None:
        if self.max_agent_resources.ranges or self.max_agent_resources.sets:
            raise InvalidRequest("--max-agent-resources takes amounts only, such as cpus:256")
        if not 0 <= self.adopt_unproven <= 86400:
            raise InvalidRequest("--adopt-unproven must be at most a day")

    @property
    def max_agent(self) -> Resources:
        """The most of each resource that an agent may have."""
        return Resources({**LARGEST_AGENT.scalars, **self.max_agent_resources.scalars})
