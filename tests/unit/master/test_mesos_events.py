"""The events of Mesos that are made of messages of the core."""

from __future__ import annotations

import pytest

from croupier.master.mesos.events import Events
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import Reason, TaskState, TaskStatus

# Of TaskStatus.Reason in Mesos' v1 API.
MESOS_REASONS = """
    COMMAND_EXECUTOR_FAILED CONTAINER_LAUNCH_FAILED CONTAINER_LIMITATION
    CONTAINER_LIMITATION_DISK CONTAINER_LIMITATION_MEMORY CONTAINER_PREEMPTED
    EXECUTOR_REGISTRATION_TIMEOUT EXECUTOR_REREGISTRATION_TIMEOUT EXECUTOR_TERMINATED
    FRAMEWORK_REMOVED INVALID_OFFERS AGENT_DISCONNECTED AGENT_DRAINING AGENT_REMOVED
    AGENT_REMOVED_BY_OPERATOR AGENT_REREGISTERED AGENT_RESTARTED AGENT_UNKNOWN
    MAX_COMPLETION_TIME_REACHED RECONCILIATION TASK_GROUP_INVALID TASK_INVALID
    TASK_KILLED_DURING_LAUNCH TASK_UNKNOWN
"""


@pytest.mark.parametrize("reason", Reason)
def test_only_reasons_of_mesos_are_sent(reason: Reason) -> None:
    ids = FrameworkId("F"), TaskId("t"), AgentId("A")
    status = TaskStatus(*ids, TaskState.KILLED, reason=reason)
    sent = Events({}, {}, {}).status(status).get("reason")
    assert sent is None or sent.removeprefix("REASON_") in MESOS_REASONS.split()
