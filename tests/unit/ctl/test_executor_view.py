"""What `croupier task` shows of a task in an executor."""

from __future__ import annotations

from croupier.api.objects import as_object
from croupier.ctl.views.task import task_lines
from croupier.v1 import operator_pb2, task_pb2


def test_a_task_in_an_executor_has_that_in_place_of_a_command() -> None:
    task = task_pb2.TaskInfo(task_id="t1", executor_id="pool-1")
    status = task_pb2.TaskStatus(task_id="t1", state=task_pb2.TASK_RUNNING)
    lines = list(task_lines(as_object(operator_pb2.TaskView(task=task, status=status))))
    assert "  executor: pool-1" in lines
    assert "  limits and use: those of its executor (croupier task show pool-1)" in lines
    assert not [line for line in lines if "command" in line or "memory" in line]
