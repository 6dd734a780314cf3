"""Tasks: the table of states, and invalid tasks."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.isolation import Isolation, parse_limits
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import (
    MAX_SLIM,
    TERMINAL,
    Command,
    Reason,
    Source,
    TaskInfo,
    TaskState,
    TaskStatus,
)
from croupier.model.task_checks import (
    MAX_COMMAND_BYTES,
    MAX_ENVIRONMENT_BYTES,
    MAX_GRACE_MS,
    MAX_NAME,
    check_task,
)
from croupier.model.task_transitions import REPORTABLE, TRANSITIONS, moved

TASK = TaskInfo(TaskId("t1"), Command(argv=("true",)), Resources.parse("cpus:1"))


def test_the_table_lists_every_state() -> None:
    assert set(TRANSITIONS) == set(TaskState)


def test_no_task_leaves_a_terminal_state() -> None:
    assert not any(TRANSITIONS[state] for state in TERMINAL)
    assert all(state.is_terminal == (state in TERMINAL) for state in TaskState)


def test_no_task_returns_to_staging_or_moves_to_error() -> None:
    launched = {
        state: after for state, after in TRANSITIONS.items() if state is not TaskState.QUEUED
    }
    reachable = frozenset().union(*launched.values())
    assert TaskState.STAGING not in reachable
    assert TaskState.ERROR not in reachable
    assert TaskState.UNKNOWN not in reachable


def test_no_agent_puts_a_task_back_into_its_queue() -> None:
    assert TaskState.QUEUED not in REPORTABLE
    assert all(TaskState.QUEUED not in TRANSITIONS[state] for state in TERMINAL)


def test_a_move_in_the_table_is_made_and_any_other_is_refused() -> None:
    assert moved(TASK.task_id, TaskState.STAGING, TaskState.RUNNING) is TaskState.RUNNING
    with pytest.raises(Conflict, match="t1 cannot go from FINISHED to RUNNING"):
        moved(TASK.task_id, TaskState.FINISHED, TaskState.RUNNING)


def test_a_valid_task_passes_the_check() -> None:
    check_task(TASK)
    check_task(replace(TASK, command=Command(shell="exit 1", environment={"A": "", "B": "=\n"})))


@pytest.mark.parametrize(
    "command",
    [
        Command(),
        Command(argv=("a",), shell="a"),
        Command(argv=("", "a")),
        Command(argv=("a", "b\0c")),
        Command(shell="a\0b"),
        Command(argv=("a",), user="r\0oot"),
        Command(argv=("a", "x" * MAX_COMMAND_BYTES)),
        Command(argv=("\u00e9" * (MAX_COMMAND_BYTES // 2 + 1),)),
        Command(argv=("a",), environment={"": "x"}),
        Command(argv=("a",), environment={"A=B": "x"}),
        Command(argv=("a",), environment={"A": "x\0"}),
        Command(argv=("a",), environment={"A\0": "x"}),
        Command(argv=("a",), environment={"A": "x" * MAX_ENVIRONMENT_BYTES}),
    ],
)
def test_a_command_that_cannot_run_is_refused(command: Command) -> None:
    with pytest.raises(InvalidRequest):
        check_task(replace(TASK, command=command))


@pytest.mark.parametrize(
    "task",
    [
        replace(TASK, task_id=TaskId("../t1")),
        replace(TASK, task_id=TaskId("")),
        replace(TASK, name="x" * (MAX_NAME + 1)),
        replace(TASK, resources=NOTHING),
        replace(TASK, resources=Resources.parse("gpus:0.5")),
        replace(TASK, grace_ms=-1),
        replace(TASK, grace_ms=MAX_GRACE_MS + 1),
    ],
)
def test_an_invalid_task_is_refused(task: TaskInfo) -> None:
    with pytest.raises(InvalidRequest):
        check_task(task)


TEXTS = [each.name for each in fields(TaskInfo) if each.type == "str"]


@pytest.mark.parametrize("name", TEXTS)
def test_all_text_of_a_task_counts_in_its_size_and_is_cut_when_it_is_slimmed(name: str) -> None:
    texts: dict[str, Any] = {name: "x" * 100_000}
    large = replace(TaskInfo(TaskId("t"), Command(("true",)), Resources.parse("cpus:1")), **texts)
    assert large.size >= 100_000
    assert large.slimmed().size <= MAX_SLIM


def test_updates_of_the_master_need_no_acknowledgement() -> None:
    status = TaskStatus(FrameworkId("f"), TaskId("t"), AgentId("a"), TaskState.RUNNING)
    assert not status.needs_acknowledgement
    assert replace(status, sequence=1).needs_acknowledgement


def test_states_and_reasons_format_as_their_names() -> None:
    assert str(Reason.AGENT_DRAINING) == "AGENT_DRAINING"
    assert f"{TaskState.RUNNING} {Source.MASTER:>7}" == "RUNNING  MASTER"
    assert int(TaskState.RUNNING) == 2, "the numbers are still those of the wire"
    assert int(Reason.NONE) == 0


# Images and limits that tasks may ask for.


@pytest.mark.parametrize("image", ["docker://busybox:1", "oci:/srv/images:latest", "dir:/srv/root"])
def test_images(image: str) -> None:
    Isolation(image=image).check()


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "docker://",
        "docker:///x",
        "oci:",
        "oci:/srv/images:",
        "oci:images:latest",
        "dir:",
        "dir:root",
        "dir:/a b",
        "dir:/a\nb",
        "docker://" + "x" * 1024,
    ],
)
def test_no_images(image: str) -> None:
    with pytest.raises(InvalidRequest):
        Isolation(image=image).check()


@pytest.mark.parametrize("text", ["pids:0", "mem:0", "cpus:1;files:0", "mem:0MB"])
def test_a_limit_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must be above 0"):
        parse_limits(text)
