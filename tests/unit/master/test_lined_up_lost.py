"""A lined-up task whose agent is not in the store any more."""

from __future__ import annotations

from croupier.master.allocator import Allocator
from croupier.master.core.records import (
    FrameworkRecord,
    MasterRecord,
    QueuePlace,
    Registry,
    TaskRecord,
)
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.model.demand import ANYWHERE
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.task import Reason, TaskState
from tests.harness.world import CLUSTER, make_task

F, ROLE = FrameworkId("F1"), Role("r")


def test_it_is_gone_since_it_may_have_run_there() -> None:
    registry = Registry(MasterRecord(CLUSTER, 1))
    registry.apply(FrameworkRecord(F, "f", (ROLE,), 600.0))
    place = QueuePlace(ANYWHERE, 1)
    registry.apply(TaskRecord(F, make_task("t1"), AgentId("away"), ROLE, queued=place))
    state = recover_state(registry, f"{CLUSTER}-2", Settings(), Allocator(), 0.0)
    (task,) = state.frameworks[F].tasks.values()
    assert (task.state, task.status.reason) == (TaskState.GONE, Reason.AGENT_UNKNOWN)
