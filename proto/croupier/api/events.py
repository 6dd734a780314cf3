"""Events: what happened in the cluster."""

from __future__ import annotations

from typing import TypedDict


class ClusterEvent(TypedDict):
    """Something that happened in the cluster.

    Attributes:
        id: EPOCH-NUMBER: the term of the master, and a number that counts up within it.
        time_ms: when the master recorded it, in milliseconds since the epoch. It may jump; the
            order of events is that of their ids.
        kind: one word of a fixed list, such as `agent-drained`.
        text: one line for people.
        agent_id: empty if it is about no agent.
        framework_id: empty if it is about no framework.
        task_id: empty if it is about no task.
        role: empty if it is about no role.
    """

    id: str
    time_ms: int
    kind: str
    text: str
    agent_id: str
    framework_id: str
    task_id: str
    role: str


class EventsReset(TypedDict):
    """Events may be missing before those that follow.

    Attributes:
        reset: why.
        last_id: the id to continue after.
    """

    reset: str
    last_id: str


class EventPage(TypedDict):
    """Events of the past.

    Attributes:
        next: the id to continue after.
        reset: why events may be missing before these; None: none is.
    """

    items: list[ClusterEvent]
    next: str
    reset: str | None
