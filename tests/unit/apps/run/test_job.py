"""Jobs, read from words and flags."""

from __future__ import annotations

from pathlib import Path
from signal import SIGUSR1

import pytest

from croupier.apps.job_file.gang_spec import GangSpec
from croupier.apps.run.cli import run
from croupier.apps.run.job import MAX_COUNT, Job, make_unit, parse_environment, read_secrets
from croupier.apps.run.job_run import role_hint
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Limits
from croupier.model.preemption import TaskPreemption
from croupier.model.resources import Resources
from croupier.wire.task import task_from_wire, task_to_wire

UNIT = Resources.parse("cpus:1;mem:128MB")


def test_a_task_runs_the_command() -> None:
    task = Job(("echo", "-n", ""), UNIT, name="n", options={"user": "u", "env": {"A": "b"}}).task(
        "t1"
    )
    assert (task.task_id, task.name, task.resources) == ("t1", "n", UNIT)
    assert (task.command.argv, task.command.shell) == (("echo", "-n", ""), "")
    assert (task.command.user, dict(task.command.environment)) == ("u", {"A": "b"})


def test_a_shell_line_joins_the_words() -> None:
    command = Job(("echo", "$A;", "ls"), UNIT, is_shell=True).task("t1").command
    assert (command.argv, command.shell) == ((), "echo $A; ls")


def test_a_job_without_a_name_is_named_for_its_command() -> None:
    assert Job(("echo", "x" * 200), UNIT).title == "echo " + "x" * 75


@pytest.mark.parametrize(
    ("job", "stem"),
    [
        (Job(("/usr/bin/sleep", "9"), UNIT), "sleep-"),
        (Job(("FOO=1", "make"), UNIT, is_shell=True), "FOO-1-"),
        (Job(("train.py --all",), UNIT, is_shell=True), "train.py-"),
        (Job(("x",), UNIT, name="night run/é"), "night-run-"),
        (Job(("...",), UNIT), "run-"),
        (Job((" ",), UNIT, is_shell=True), "run-"),
        (Job(("x" * 99,), UNIT), "x" * 20 + "-"),
    ],
)
def test_task_ids_can_be_typed_and_differ_between_frameworks(job: Job, stem: str) -> None:
    one, other = job.stem("c-1-F1"), job.stem("c-1-F2")
    assert one[:-4] == other[:-4] == stem
    assert one != other
    assert job.stem("c-1-F1") == one


@pytest.mark.parametrize("count", [0, -1, MAX_COUNT + 1])
def test_the_count_is_bounded(count: int) -> None:
    with pytest.raises(InvalidRequest, match="--count"):
        Job(("x",), UNIT, count=count)


@pytest.mark.parametrize("words", [("",), ("a\0b",)])
def test_a_malformed_command_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest):
        Job(words, UNIT)


def test_a_refusal_of_the_default_role_names_the_flag() -> None:
    refusal = "client/alice may not register role:*"
    assert role_hint(Job(("x",), UNIT), refusal) == "; --role names the role to run in"
    assert role_hint(Job(("x",), UNIT), "client/alice may not run-as user:x") == ""
    assert role_hint(Job(("x",), UNIT, role="ads"), "client/alice may not register role:ads") == ""


def test_a_missing_command_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidRequest, match="croupier run -- echo hello"):
        Job((), UNIT)


def test_resources_are_read_from_flags() -> None:
    assert str(make_unit("0.5", "64MB", "1GB", "2")) == "cpus:0.5;mem:64MB;disk:1GB;gpus:2"
    for amounts in (("0", "0", "0", "0"), ("x", "1", "0", "0"), ("-1", "1", "0", "0")):
        with pytest.raises(InvalidRequest):
            make_unit(*amounts)


def test_an_environment_is_read_from_flags() -> None:
    assert parse_environment(["A=1", "B=", "C=x=y", "A=2"]) == {"A": "2", "B": "", "C": "x=y"}
    for pair in ("A", "=1", ""):
        with pytest.raises(InvalidRequest, match="NAME=VALUE"):
            parse_environment([pair])


def test_secrets_come_from_files_the_environment_and_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("from a file\n")
    flags = [f"A=@{path}", "B", "C=plain=x"]
    secrets = read_secrets(flags, {"B": "from here"})
    assert secrets.reveal() == {"A": "from a file", "B": "from here", "C": "plain=x"}
    task = Job(("x",), UNIT, secrets=secrets, options={"secret_files": True}).task("t1")
    assert task.secrets == secrets
    assert task.command.secret_files


@pytest.mark.parametrize("flag", ["hunter2", "A=@/no/such/file", "hunter-2=x", "=hunter2"])
def test_malformed_secrets_are_refused_and_not_quoted(flag: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_secrets([flag], {})
    assert "hunter" not in str(refused.value)


def test_limits_and_isolation_are_those_of_the_task() -> None:
    options = {
        "limits": "mem:1GB;pids:9",
        "network": False,
        "max_completion_s": 60.0,
        "min_run_s": 2.5,
        "requeue": True,
        "checkpoint_signal": "usr1",
    }
    task = Job(("x",), UNIT, options=options).task("t1")
    assert task.limits == Limits(mem=1_024_000, pids=9)
    assert task.isolation.no_network
    assert task.info.max_completion_ms == 60_000
    assert task.info.preemption == TaskPreemption(2500, True, SIGUSR1)
    assert task_from_wire(task_to_wire(task.info)).preemption == task.info.preemption
    assert "requeue" in task.needs


@pytest.mark.parametrize("bad", [{"limits": "mem:1MB"}, {"limits": "x"}, {"image": "debian"}])
def test_isolation_that_cannot_be_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        Job(("x",), UNIT, options=bad)


@pytest.mark.parametrize("bad", [{"network": False}, {"requeue": True}])
def test_options_that_no_task_of_a_gang_can_have_are_refused_at_once(bad: dict[str, bool]) -> None:
    with pytest.raises(InvalidRequest, match="gang"):
        Job(("true",), UNIT, count=2, gang=GangSpec(2), options=bad)


@pytest.mark.parametrize(("mem", "disk"), [("512", "0"), ("1GB", "10")])
def test_a_size_without_a_unit_is_refused(mem: str, disk: str) -> None:
    with pytest.raises(InvalidRequest, match="has no unit; write "):
        make_unit("1", mem, disk, "0")
    with pytest.raises(InvalidRequest, match="has no unit; write "):
        Job(("x",), UNIT, options={"limits": f"pids:5;mem:{mem};disk:{disk}"})


@pytest.mark.parametrize(("same", "spread"), [("", None), (None, "")])
def test_an_empty_attribute_of_a_gang_is_refused(same: str | None, spread: str | None) -> None:
    with pytest.raises(InvalidRequest, match="need the name of an attribute"):
        run("true", nodes=2, same=same, spread=spread)
