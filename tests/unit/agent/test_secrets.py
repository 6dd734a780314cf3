"""Secrets in the agent: in no record and no report, and gone with the run."""

from __future__ import annotations

import stat
from binascii import a2b_base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Checkpoint, Effect, Spawn
from croupier.agent.core.events import Now
from croupier.agent.core.recovery import recovered
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.record_lines import body_of
from croupier.agent.secret_files import SecretFiles, SecretsUndeliverable, is_in_memory
from croupier.agent.wire import order_from_wire, register_to_wire
from croupier.model.agent_orders import KillTask, LaunchTask
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.secrets import WITHHELD, SecretValues
from croupier.model.task import Command, Reason, TaskInfo, TaskState
from croupier.v1 import agent_pb2 as pb
from croupier.wire.task import task_to_wire

CANARY = "hunter2"
VALUES = SecretValues({"PASSWORD": CANARY})
TOTAL = Resources.parse("cpus:4;mem:1GB")
KEY = (FrameworkId("F1"), TaskId("t1"))
INFO = TaskInfo(
    KEY[1], Command(("true",), secrets={"PASSWORD": WITHHELD}), Resources.parse("cpus:1")
)
ORDER = LaunchTask(KEY[0], INFO, DEFAULT_ROLE)
NOW = Now(100.0, 5000)


def started() -> AgentState:
    state = AgentState.of(TOTAL)
    for event in (ev.AgentStarted(), ev.Connected(1)):
        step(state, event, NOW)
    return state


def decided(state: AgentState, event: ev.Event) -> list[Effect]:
    effects = step(state, event, NOW)
    state.check()
    return effects


def spawned(effects: list[Effect]) -> list[Spawn]:
    return [each for each in effects if isinstance(each, Spawn)]


def test_a_launch_from_the_wire_keeps_values_apart_from_the_task() -> None:
    launch = pb.LaunchTask(framework_id="F1", task=task_to_wire(INFO, VALUES))
    event = order_from_wire(pb.Order(launch=launch))
    assert event == ev.TaskLaunch(ORDER, VALUES)
    assert CANARY not in repr(event)


def test_values_go_to_the_process_and_to_no_record_or_report() -> None:
    state = started()
    effects = decided(state, ev.TaskLaunch(ORDER, VALUES))
    assert [each.secrets for each in spawned(effects)] == [VALUES]
    written = [a2b_base64(body_of(each.record)) for each in effects if isinstance(each, Checkpoint)]
    assert any(b"PASSWORD" in body for body in written)
    (report,) = register_to_wire(pb.Register(hostname="h"), state)
    assert dict(report.register.tasks[0].task.command.secrets) == {"PASSWORD": ""}
    assert report.register.takes_secrets
    assert CANARY not in f"{written} {effects} {state} {report}"


def test_a_launch_without_the_values_is_rejected() -> None:
    state = started()
    assert not spawned(decided(state, ORDER))
    status = state.tasks[KEY].status
    assert (status.state, status.reason) == (TaskState.DROPPED, Reason.TASK_INVALID)


def test_a_launch_that_is_sent_twice_starts_one_process() -> None:
    state = started()
    decided(state, ev.TaskLaunch(ORDER, VALUES))
    assert not spawned(decided(state, ev.TaskLaunch(ORDER, VALUES)))


@pytest.mark.parametrize("secrets", [True, False])
def test_only_a_task_without_secrets_is_started_by_the_next_life(secrets: bool) -> None:
    info = INFO if secrets else replace(INFO, command=Command(("true",)))
    before = started()
    launch = LaunchTask(KEY[0], info, DEFAULT_ROLE)
    effects = decided(before, ev.TaskLaunch(launch, VALUES) if secrets else launch)
    records = [before.record, *(e.record for e in effects if isinstance(e, Checkpoint))]
    state = recovered(records, TOTAL)
    decided(state, ev.AgentStarted())
    effects = decided(state, ev.Vanished(KEY, "never started", never_started=True))
    assert bool(spawned(effects)) is not secrets
    status = state.tasks[KEY].status
    if secrets:
        assert (status.state, status.reason) == (TaskState.DROPPED, Reason.AGENT_RESTARTED)
        assert "stores no secrets" in status.message


def test_a_task_that_is_killed_before_its_start_takes_its_values_along() -> None:
    state = started()
    decided(state, ev.TaskLaunch(ORDER, VALUES))
    decided(state, KillTask(*KEY, None, Reason.KILLED_BY_FRAMEWORK))
    assert not state.wants_process(KEY)


class TestFiles:
    """Secrets as files, on the machine's tmpfs."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> SecretFiles:
        base = Path("/dev/shm")
        if not is_in_memory(base):
            pytest.skip("this machine has no tmpfs at /dev/shm")
        return SecretFiles(tmp_path, base)

    @pytest.fixture(autouse=True)
    def remove(self, files: SecretFiles) -> Iterator[None]:
        yield
        for path in files.left(()):
            files.remove(path.name)
        if files.root.exists():
            files.root.rmdir()

    def test_are_readable_by_their_owner_only(self, files: SecretFiles) -> None:
        path = files.write("r-1", VALUES)
        assert (path / "PASSWORD").read_text() == CANARY
        assert stat.S_IMODE((path / "PASSWORD").stat().st_mode) == 0o400
        assert stat.S_IMODE(path.stat().st_mode) == 0o500
        assert stat.S_IMODE(files.root.stat().st_mode) == 0o711

    def test_are_removed_with_their_run(self, files: SecretFiles) -> None:
        path = files.write("r-1", VALUES)
        files.write("r-2", VALUES)
        assert files.left({"r-2"}) == [path]
        files.remove("r-1")
        assert not path.exists()
        files.remove("r-1")
        assert files.left({"r-2"}) == []
        files.remove("r-2")
        assert not files.root.exists()
        assert files.write("r-3", VALUES).exists()

    def test_are_removed_even_if_the_task_has_added_directories(self, files: SecretFiles) -> None:
        path = files.write("r-1", VALUES)
        path.chmod(0o700)
        (path / "own").mkdir()
        (path / "link").symlink_to("/etc/passwd")
        with pytest.raises(OSError, match="not empty"):
            files.remove("r-1")
        assert [each.name for each in path.iterdir()] == ["own"]
        (path / "own").rmdir()

    def test_are_not_written_to_a_disk(self, tmp_path: Path) -> None:
        if is_in_memory(tmp_path):
            pytest.skip("the temporary directory is a tmpfs")
        with pytest.raises(SecretsUndeliverable, match="not a tmpfs"):
            SecretFiles(tmp_path, tmp_path).write("r-1", VALUES)

    def test_are_not_written_to_a_directory_of_others(self, files: SecretFiles) -> None:
        files.root.mkdir(mode=0o777)
        files.root.chmod(0o777)
        with pytest.raises(SecretsUndeliverable, match="agent alone"):
            files.write("r-1", VALUES)
        assert not any(files.root.iterdir())
