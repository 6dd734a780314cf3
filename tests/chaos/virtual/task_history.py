"""The history of a task, and violations of invariants."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.ids import FrameworkId
from croupier.model.task import TaskStatus
from tests.chaos.virtual.framework import FrameworkProcess
from tests.chaos.virtual.machine import Machine, Run


class Violation(AssertionError):
    """An invariant was violated."""


@dataclass(slots=True)
class TaskHistory:
    """The history of one task, as the judge observed it.

    Attributes:
        framework_id, client_id: the framework that named it, and the run of its program.
        accepted, refused: the master's verdict.
        run: its process, once there was one.
        killers: the parties that wanted it killed.
        kill_told: a master has promised to kill it.
        ends: terminal updates that the handler received, with the run of the program.
        is_known: the handler has received a terminal update, also as an answer to RECONCILE.
        end_acknowledged: the ledger has forgotten the task because its end was acknowledged.
        excused: its framework was removed, so its end need not arrive.
        failed_ends: runs of programs whose handler failed on its end as an answer to RECONCILE.
        is_over: its agent has reported its end.
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
