"""Where workers reach an executor, and what shapes and starts say."""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import pytest

from croupier.futures import ClusterExecutor
from croupier.futures.gate import Hello
from croupier.futures.shape import Shape, resources_of
from croupier.futures.start import (
    MAX_FAILURES,
    Reach,
    StartFailures,
    private_python_hint,
    reach_of,
    same_python,
    start_hint,
)
from croupier.sdk import InvalidRequest, Reason, Resources, TaskState, TaskStatus

HERE = Reach("10.0.0.5", "10.0.0.5", 0)


@pytest.mark.parametrize(
    ("address", "listen", "reach"),
    [
        ("10.0.0.5", None, Reach("10.0.0.5", "10.0.0.5", 0)),
        ("10.0.0.5:7000", None, Reach("10.0.0.5", "10.0.0.5", 7000)),
        ("build.example:7000", "0.0.0.0", Reach("build.example", "0.0.0.0", 7000)),
        ("[fd00::5]:7000", None, Reach("fd00::5", "fd00::5", 7000)),
        ("fd00::5", None, Reach("fd00::5", "fd00::5", 0)),
        (None, None, Reach("127.0.0.1", "127.0.0.1", 0)),
    ],
)
def test_an_address_says_where_to_listen(
    address: str | None, listen: str | None, reach: Reach
) -> None:
    assert reach_of(address, listen, "127.0.0.1:5050,10.0.0.1:5050") == reach


@pytest.mark.parametrize("address", ["0.0.0.0", "[::]:7000", "host:port", "host:70000", ":7000"])
def test_an_address_that_no_worker_can_reach_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match=r"HOST:PORT|cannot connect"):
        reach_of(address, None, None)


def test_resources_are_named_in_one_way() -> None:
    assert resources_of(2, None, None) == Resources.parse("cpus:2;mem:512MB")
    assert resources_of(None, "1GB", None) == Resources.parse("cpus:1;mem:1GB")
    assert resources_of(None, None, "cpus:3;gpus:1") == Resources.parse("cpus:3;gpus:1")
    assert resources_of(None, None, None) is None
    with pytest.raises(InvalidRequest, match="either resources, or cpus and mem"):
        resources_of(1, None, "cpus:3")


def test_shapes_are_equal_if_their_tasks_are() -> None:
    one, other = (Shape(Resources.parse("cpus:1"), python="p") for _ in range(2))
    assert (one, hash(one)) == (other, hash(other))
    assert one != Shape(Resources.parse("cpus:1"), python="q")


@pytest.mark.parametrize(
    "options",
    [
        {"resources": "cpus:none"}, {"retries": -1}, {"retry_on": "OSError"}, {"limits": "x:1"},
        {"max_bytes": 0}, {"max_bytes": 1 << 33}, {"address": "0.0.0.0"}, {"image": "nothing"},
    ],
    ids=str,
)  # fmt: skip
def test_bad_arguments_are_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        ClusterExecutor(master="127.0.0.1:1", **options)  # type: ignore[arg-type]


def test_options_are_checked_and_kept() -> None:
    executor = ClusterExecutor(master="127.0.0.1:1")
    with pytest.raises(InvalidRequest):
        executor.options(retries=-1)
    with pytest.raises(TypeError, match="initializer must be a callable"):
        ClusterExecutor(initializer="no")  # type: ignore[arg-type]
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_another_python_is_named() -> None:
    name, minor = sys.implementation.name, sys.version_info[:2]
    assert same_python(Hello("t", "h", platform.python_version(), name, minor)) == ""
    for hello in (Hello("t", "h", "3.7.1", name, (3, 7)), Hello("t", "h", "x", "pypy", minor)):
        problem = same_python(hello)
        assert f"runs {hello.implementation} {hello.python}" in problem
        assert "python=PATH" in problem


def status(state: TaskState, reason: Reason = Reason.NONE, code: int | None = None) -> TaskStatus:
    return TaskStatus("f", "t", "a", state, reason=reason, exit_code=code)  # type: ignore[arg-type]


def test_the_executor_gives_up_after_some_failed_starts_in_a_row() -> None:
    starts = StartFailures()
    failed = status(TaskState.FAILED, code=113)
    assert starts.pause_s == 0
    for _ in range(MAX_FAILURES - 1):
        assert not starts.on_failure(failed, 0.0)
    assert starts.pause_s > 0
    assert not starts.may_start(0.5)
    assert starts.may_start(1.5)
    starts.on_success()
    for _ in range(MAX_FAILURES - 1):
        assert not starts.on_failure(failed, 0.0)
    assert starts.on_failure(failed, 0.0)
    assert starts.count == MAX_FAILURES
    assert "could not connect to 10.0.0.5" in start_hint(failed, HERE)


def test_workers_that_the_cluster_ended_do_not_count() -> None:
    starts = StartFailures()
    for _ in range(MAX_FAILURES + 1):
        for ended in (
            status(TaskState.FAILED, Reason.PREEMPTED),
            status(TaskState.KILLED, Reason.KILLED_BY_OPERATOR),
            status(TaskState.GONE, Reason.AGENT_REBOOTED),
            status(TaskState.LOST),
        ):
            assert not starts.on_failure(ended, 0.0)
    assert starts.may_start(0.0)


# Workers whose Python other users may not run.


def test_a_python_in_a_private_directory_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        python = Path(name, "venv/bin/python")
        python.parent.mkdir(parents=True)
        python.symlink_to("/bin/sh")
        hint = private_python_hint(str(python))
        assert f"may not enter {name}" in hint
        assert "croupier local --task-user root" in hint
        Path(name).chmod(0o755)
        assert not private_python_hint(str(python))
    assert not private_python_hint(f"{name}/gone/python")
