"""Agents."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount
from croupier.api.objects import as_object, makes
from croupier.model.attributes import attribute_text
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import attributes_from_wire


class DrainBlocker(TypedDict):
    """A task that stands in the way of a drain."""

    framework_id: str
    task_id: str
    reason: str


class Drain(TypedDict):
    """The progress of draining an agent.

    Attributes:
        grace_s: the longest grace of a task; None: each has its own.
        tasks_left: tasks that have not ended.
        estimate_s: time until the last of these is killed; None: unknown.
        blockers: at most 100.
    """

    done: bool
    grace_s: float | None
    tasks_left: int
    estimate_s: float | None
    blockers: list[DrainBlocker]


class HealthProblem(TypedDict):
    """A problem that prevents an agent from launching tasks."""

    part: str
    message: str


class Agent(TypedDict):
    """An agent.

    Attributes:
        state: such as `connected`.
        http_address: HOST:PORT or https://HOST:PORT; empty if it has none.
        tasks: the number of its tasks.
        deactivated: an operator withholds it from offers.
        drain: None unless it is being drained.
        isolation: features that it can enforce.
        default_user: the account of tasks that name none.
        decided_in_s: time until the master gives it up; None unless it is disconnected.
        connected_since_ms: when its session began, in milliseconds since the epoch; None: it has
            none.
    """

    agent_id: str
    hostname: str
    state: str
    http_address: str
    attributes: dict[str, str]
    total: Amount
    used: Amount
    offered: Amount
    tasks: int
    deactivated: bool
    drain: Drain | None
    isolation: list[str]
    default_user: str
    problems: list[HealthProblem]
    decided_in_s: float | None
    connected_since_ms: int | None


@makes(Agent)
def agent_view(agent: pb.AgentView) -> Agent:
    """Return one agent."""
    attributes = attributes_from_wire(agent.agent.attributes)
    words = {name: attribute_text(value) for name, value in attributes.items()}
    return as_object(Agent, agent, agent.agent, attributes=words)
