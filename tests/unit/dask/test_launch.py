"""The tasks of Dask workers, and what their ends mean."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from distributed.security import Security

from croupier.dask import DaskCluster
from croupier.dask.boot import NO_DASK, OTHER_PYTHON
from croupier.dask.workers import (
    DaskLaunch,
    boot_source,
    failure_of,
    failure_text,
    security_of,
    security_variables,
)
from croupier.futures.shape import Shape
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.sdk import InvalidRequest, Reason, Resources, TaskState, TaskStatus

SHAPE = Shape(Resources.parse("cpus:2;mem:1GB"), python="/opt/python")


def ended(state: TaskState = TaskState.FAILED, **more: object) -> TaskStatus:
    return TaskStatus(FrameworkId("F"), TaskId("d-1"), AgentId("A"), state, **more)  # type: ignore[arg-type]


def test_a_worker_has_the_resources_of_its_task() -> None:
    launch = DaskLaunch(SHAPE, 2, "d", death_timeout_s=7, arguments=("--preload", "x"))
    task = launch.task("d-1", "tls://host:1", security_of(None))
    assert task.command.argv[:3] == ("/opt/python", "-u", "-c")
    words = " ".join(task.command.argv[4:])
    assert words.startswith("tls://host:1 --name d-1 --no-nanny --nthreads 2")
    assert "--memory-limit 1073741824 --death-timeout 7 --local-directory ." in words
    assert words.endswith("--preload x")
    python = ".".join(platform.python_version_tuple()[:2])
    assert task.command.environment["CROUPIER_DASK_PYTHON"] == python
    assert task.command.environment["OMP_NUM_THREADS"] == "1"


def test_a_key_in_memory_is_secret_and_paths_are_passed_on() -> None:
    plain, secret = security_variables(security_of(True))
    assert set(secret) == {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
        "DASK_DISTRIBUTED__COMM__TLS__WORKER__CERT",
        "DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY",
    }
    assert plain == {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
    files = Security(tls_ca_file="/ca.pem", tls_worker_cert="/w.pem", require_encryption=True)
    plain, secret = security_variables(files)
    assert plain["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] == "/ca.pem"
    assert secret == {}
    assert security_variables(security_of(False)) == ({}, {})


def test_every_cluster_has_a_certificate_of_its_own() -> None:
    (_, first), (_, second) = (security_variables(security_of(None)) for _ in range(2))
    assert all(first[name] != second[name] for name in first)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"threads": 0}, "threads must be at least 1"),
        ({"cpus": 1, "resources": "cpus:1"}, "either resources, or cpus and mem"),
        ({"mem": "lots"}, "'lots' is not an amount"),
        ({"security": "yes"}, "security is a distributed.Security"),
        ({"address": "0.0.0.0"}, "workers cannot connect to 0.0.0.0"),
        ({"limits": "mem:1MB"}, "is below the task's mem"),
        ({"env": {"A=B": ""}}, "cannot be an environment variable"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_starts(
    arguments: dict[str, object], error: str
) -> None:
    with pytest.raises(InvalidRequest, match=error):
        DaskCluster(master="127.0.0.1:1", **arguments)  # type: ignore[arg-type]


def test_boot_refuses_another_python_before_it_imports_dask() -> None:
    run = subprocess.run(
        [sys.executable, "-I", "-c", boot_source()],
        env={"CROUPIER_DASK_PYTHON": "2.7"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert run.returncode == OTHER_PYTHON
    assert run.stderr.startswith("the client runs Python 2.7, this worker ")


def test_boot_says_that_there_is_no_dask() -> None:
    source = "import sys; sys.modules['distributed'] = None\n" + boot_source()
    python = ".".join(platform.python_version_tuple()[:2])
    run = subprocess.run(
        [sys.executable, "-I", "-c", source],
        env={"CROUPIER_DASK_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert run.returncode == NO_DASK
    assert "cannot import distributed" in run.stderr


def test_the_error_names_the_last_agent_and_what_to_do() -> None:
    error = failure_of(ended(exit_code=OTHER_PYTHON), "host7", 3)
    assert "3 workers ended before they had connected; the last one on host7: " in str(error)
    assert "its Python is of another minor version" in str(error)
    assert "on no agent: exit code 1" in str(failure_of(ended(exit_code=1), "", 3))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (ended(exit_code=NO_DASK), "its Python has no Dask"),
        (ended(exit_code=1), "exit code 1; its stderr is in the sandbox of task d-1"),
        (
            ended(reason=Reason.CONTAINER_LAUNCH_FAILED, message="no such program"),
            "no such program; name a Python that agents have",
        ),
        (ended(TaskState.ERROR, reason=Reason.TASK_INVALID, message="x"), "ERROR TASK_INVALID x"),
    ],
)
def test_what_an_end_means(status: TaskStatus, text: str) -> None:
    assert failure_text(status).startswith(text)
