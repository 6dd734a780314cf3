"""The time of each step of a task's life."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from croupier.master.core.facts import FrameworkLeft, TaskMoved
from croupier.master.metrics.task_times import TaskTimes
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import Reason, Source, TaskState

F, T = FrameworkId("f"), TaskId("t")


def move(times: TaskTimes, state: TaskState, now: float) -> None:
    fact = TaskMoved(F, T, AgentId("a"), state, Source.AGENT, Reason.NONE, "")
    times.happened(fact, now)


def measured(times: TaskTimes) -> dict[str, float]:
    """Return the sum of each step that was measured."""
    registry = CollectorRegistry()
    registry.register(times)
    found = {}
    for metric in registry.collect():
        counts = {s.labels["step"]: s for s in metric.samples if s.name.endswith("_count")}
        for sample in metric.samples:
            if sample.name.endswith("_sum") and counts[sample.labels["step"]].value:
                found[sample.labels["step"]] = sample.value
    return found


def test_the_whole_life() -> None:
    times = TaskTimes()
    states = (TaskState.QUEUED, TaskState.STAGING, TaskState.STARTING, TaskState.RUNNING)
    for now, state in enumerate((*states, TaskState.FINISHED)):
        move(times, state, now * now)
    times.acknowledged(F, T, 20)
    times.acknowledged(F, T, 30)
    assert measured(times) == {"queued": 1, "starting": 8, "running": 7, "acknowledging": 4}


def test_steps_that_were_cut_short_or_not_seen_are_not_counted() -> None:
    times = TaskTimes()
    move(times, TaskState.STAGING, 0)
    move(times, TaskState.FAILED, 5)
    times.acknowledged(F, T, 7)
    assert measured(times) == {"acknowledging": 2}
    move(times, TaskState.RUNNING, 8)
    move(times, TaskState.FINISHED, 9)
    times.acknowledged(F, T, 10)
    assert measured(times) == {"acknowledging": 2}


def test_an_unreachable_agent_does_not_restart_the_clock() -> None:
    times = TaskTimes()
    states = (TaskState.STAGING, TaskState.RUNNING, TaskState.UNREACHABLE, TaskState.RUNNING)
    for now, state in enumerate((*states, TaskState.FINISHED)):
        move(times, state, now)
    assert measured(times) == {"starting": 1, "running": 3}


def test_tasks_of_removed_frameworks_and_ended_terms_are_forgotten() -> None:
    times = TaskTimes()
    move(times, TaskState.STAGING, 0)
    times.happened(FrameworkLeft(F, "removed", ""), 1)
    move(times, TaskState.RUNNING, 2)
    move(times, TaskState.STAGING, 3)
    times.clear()
    move(times, TaskState.RUNNING, 4)
    assert measured(times) == {}
