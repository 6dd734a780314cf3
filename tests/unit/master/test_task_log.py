"""One log line for each end of a task, with its whole life."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from croupier.agent.metrics import TaskLog as AgentTaskLog
from croupier.master.core.facts import TaskMoved
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.master.log import EVENTS, FactThrottle, TaskLog, log_fact
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState, TaskStatus
from tests.harness.still_clock import StillClock

F, T, A = FrameworkId("f1"), TaskId("t1"), AgentId("a1")
LIFE = (TaskState.QUEUED, TaskState.STAGING, TaskState.STARTING, TaskState.RUNNING)
END = TaskStatus(
    F, T, A, TaskState.FAILED, Source.EXECUTOR, Reason.COMMAND_EXECUTOR_FAILED,
    "exited with code 3", time_ms=10_009_000, exit_code=3, pid=77,
)  # fmt: skip


def _logged(log: TaskLog, state: TaskState) -> list[dict[str, Any]]:
    """Return the lines above debug for a fact."""
    fact = TaskMoved(F, T, A, state, END.source, END.reason, END.message)
    with capture_logs() as logs:
        log_fact(fact, FactThrottle())
        log.happened(fact)
    return [_known(each) for each in logs if each["log_level"] != "debug"]


def _known(line: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the fields with a value."""
    return {name: value for name, value in line.items() if value is not None}


def _state(*tasks: Task) -> State:
    framework = SimpleNamespace(name="etl", tasks={each.task_id: each for each in tasks})
    agents = {A: SimpleNamespace(hostname="host0")}
    return cast("State", SimpleNamespace(frameworks={F: framework}, agents=agents))


def test_the_master_writes_one_line_with_the_whole_life() -> None:
    info = TaskInfo(T, Command(("exit", "3")), Resources())
    task = Task(info, F, A, Role("ads"), END, submitted=100.0, placed=103.5, started_ms=10_004_000)
    log = TaskLog(_state(task), StillClock(110.0, 10_010_000))
    assert [_logged(log, state) for state in (*LIFE, TaskState.KILLING)] == [[]] * 5
    assert _logged(log, TaskState.FAILED) == [
        {
            "event": "task_ended",
            "log_level": "info",
            "framework_id": F,
            "framework": "etl",
            "role": "ads",
            "task_id": T,
            "agent_id": A,
            "hostname": "host0",
            "state": "FAILED",
            "reason": "COMMAND_EXECUTOR_FAILED",
            "source": "EXECUTOR",
            "exit_code": 3,
            "message": "exited with code 3",
            "queued_at": "1970-01-01T02:46:40.000Z",
            "placed_at": "1970-01-01T02:46:43.500Z",
            "started_at": "1970-01-01T02:46:44.000Z",
            "ended_at": "1970-01-01T02:46:49.000Z",
        }
    ]


def test_the_end_of_a_forgotten_task_is_a_line_without_its_life() -> None:
    log = TaskLog(_state(), StillClock())
    (line,) = _logged(log, TaskState.LOST)
    assert (line["task_id"], line["framework"], line["state"]) == (T, "etl", "LOST")
    assert not {"queued_at", "placed_at", "started_at", "exit_code"} & set(line)


def test_the_agent_writes_one_line_with_the_life_on_it() -> None:
    log = AgentTaskLog(StillClock(0.0, 10_003_000))
    with capture_logs() as logs:
        log.ordered((F, T))
        for state, time_ms in ((TaskState.STARTING, 10_003_500), (TaskState.RUNNING, 10_004_000)):
            log.moved(TaskStatus(F, T, A, state, Source.AGENT, time_ms=time_ms, pid=77))
        log.moved(END)
    assert [each["event"] for each in logs] == ["task_moved", "task_moved", "task_ended"]
    assert [each["log_level"] for each in logs] == ["debug", "debug", "info"]
    assert _known(logs[2]) == {
        "event": "task_ended",
        "log_level": "info",
        "framework_id": F,
        "task_id": T,
        "state": "FAILED",
        "pid": 77,
        "reason": "COMMAND_EXECUTOR_FAILED",
        "exit_code": 3,
        "message": "exited with code 3",
        "ordered_at": "1970-01-01T02:46:43.000Z",
        "started_at": "1970-01-01T02:46:44.000Z",
        "ended_at": "1970-01-01T02:46:49.000Z",
    }
    # It remembers live tasks only.
    assert not log._ordered
    assert not log._started


def test_no_field_of_a_fact_is_called_as_an_argument_of_the_logger() -> None:
    taken = {"event", "exc_info", "level", "stack_info"}
    assert {kind for kind in EVENTS if taken & {field.name for field in fields(kind)}} == set()
