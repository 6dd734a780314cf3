"""What is known of a task, and that something of it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.ids import FrameworkId
from croupier.model.task import TaskStatus
from tests.chaos.virtual.framework import FrameworkProcess
from tests.chaos.virtual.machine import Machine, Run


class Violation(AssertionError):
    """Something was that must never be."""


@dataclass(slots=True)
class Fate:
    """What is known of one task.

    Attributes:
        framework_id, client_id: whose it was when it was named, and in which run of that program.
        accepted, refused: what a master has said of it.
        run: its process, once there was one.
        killers: who wanted it ended.
        kill_told: a master has said that it will be.
        ends: ends that the handler was told, with the life of the framework that was.
        is_known: the handler was told of an end, be it by an answer to RECONCILE.
        end_acknowledged: the ledger has forgotten the task because the handler was told.
        excused: its framework was removed: nobody waits for its end.
        failed_ends: runs of programs whose handler failed as RECONCILE was answered with its end.
        is_over: its agent has said that it ended.
    """

    owner: FrameworkProcess
    framework_id: FrameworkId
    client_id: str
    accepted: bool = False
    refused: bool = False
    recorded: bool = False
    run: Run | None = None
    machine: Machine | None = None
    killers: set[str] = field(default_factory=set)
    kill_told: bool = False
    sequences: dict[str, int] = field(default_factory=dict)
    ends: list[tuple[str, TaskStatus]] = field(default_factory=list)
    is_known: bool = False
    end_acknowledged: bool = False
    excused: bool = False
    is_over: bool = False
    failed_ends: set[str] = field(default_factory=set)
