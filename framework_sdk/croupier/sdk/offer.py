"""Messages of the master to a framework: offers, agents, preemption and lost agents."""

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
        hold_id: the hold whose unused part it is; empty if it is of none.
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
    hold_id: str = ""

    @property
    def expires_in_s(self) -> float:
        """Seconds until the lease ends; 0 once it has."""
        return max(0.0, self.expires_at - self.clock.now())


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


@dataclass(frozen=True, slots=True)
class Failure:
    """A lost agent. Status updates report the state of each of its tasks."""

    agent_id: str
    hostname: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A message from an executor of the framework.

    Attributes:
        executor_id: the task id of the executor.
    """

    executor_id: str
    agent_id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """A starving role is entitled to the resources of these tasks: end them, or the master does.

    Attributes:
        task_ids: all on one agent; some may have ended meanwhile.
        role: the role whose share they are charged to.
        grace_s: seconds from the request until the master kills the tasks.
        reason: text for people that names the starving role.
        expires_at: when the master kills the remaining tasks, seconds on `clock`.
        clock: for `expires_in_s`.
    """

    task_ids: tuple[str, ...]
    agent_id: str
    role: str
    grace_s: float
    reason: str
    expires_at: float = field(repr=False)
    clock: Clock = field(repr=False, compare=False)

    @property
    def expires_in_s(self) -> float:
        """Seconds until the master kills the tasks; 0 once it may have."""
        return max(0.0, self.expires_at - self.clock.now())
