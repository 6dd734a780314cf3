"""Tasks of other users than the agent's, and their secrets."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.secret_files import SecretFiles, is_in_memory
from croupier.model.secrets import SecretValues
from croupier.model.task import TaskState
from croupier.v1 import agent_pb2 as pb
from croupier.wire.task import task_to_wire
from tests.harness.eventually import eventually
from tests.harness.open_directory import open_directory
from tests.harness.scripted_master import F, ScriptedMaster, shell
from tests.integration.agent.conftest import Serving
from tests.integration.agent.test_running import sandbox

VALUES = SecretValues({"PASSWORD": "hunter2"})
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a directory that tasks of other users can enter."""
    with open_directory() as path:
        yield path


@AS_ROOT
@pytest.mark.skipif(not is_in_memory(Path("/dev/shm")), reason="there is no tmpfs")
async def test_only_the_user_of_a_task_can_read_its_secrets(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    runs = SecretFiles((tmp_path / "work").resolve())
    line = 'cd "$CROUPIER_SECRETS_DIR"; cat PASSWORD; stat -c " %U %a" . PASSWORD; touch new'
    info = shell("t1", f"{line}; ls", user="nobody")
    names = VALUES.withheld()
    info = replace(info, command=replace(info.command, secrets=names, secret_files=True))
    launch = pb.LaunchTask(framework_id=F, task=task_to_wire(info, VALUES))
    master.order(pb.Order(launch=launch))
    await master.state("t1", TaskState.FINISHED)
    home = sandbox(tmp_path, "t1")
    assert (home / "stdout").read_text() == "hunter2 nobody 500\n nobody 400\nPASSWORD\n"
    await eventually(lambda: not runs.root.exists(), what="the files are removed")


@AS_ROOT
async def test_a_task_runs_as_the_user_it_asks_for(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    # LD_PRELOAD must have no effect before the user has changed.
    asked = {"LD_PRELOAD": "/no/such/lib.so", "GREETING": "hello"}
    line = "id -un; echo $GREETING $USER; touch mine"
    master.launch(shell("t1", line, user="nobody", environment=asked))
    await master.state("t1", TaskState.FINISHED)
    home = sandbox(tmp_path, "t1")
    assert (home / "stdout").read_text() == "nobody\nhello nobody\n"
    assert (home / "mine").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert home.stat().st_uid == pwd.getpwnam("nobody").pw_uid
