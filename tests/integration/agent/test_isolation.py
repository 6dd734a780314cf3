"""Tasks with images and in namespaces on a real agent: pulls, ends, limits, killed agents."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from croupier.agent.isolation.container_runtime import find_runtime
from croupier.agent.isolation.flags import IsolationFlags
from croupier.model.errors import Unavailable
from croupier.model.isolation import Isolation
from croupier.model.task import Reason, TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.debian import program
from tests.harness.debian import program as tool
from tests.harness.eventually import eventually
from tests.harness.oci_image import layer_of, make_image, make_root
from tests.harness.processes import is_running
from tests.harness.scripted_master import F, ScriptedMaster, shell
from tests.integration.agent.conftest import Serving, Start, registered

RUNNING, FINISHED, FAILED, KILLED = (
    TaskState.RUNNING,
    TaskState.FINISHED,
    TaskState.FAILED,
    TaskState.KILLED,
)


class Images:
    """A layout, the tools on PATH, and a gate that every pull waits for."""

    def __init__(self, path: Path) -> None:
        self.roots, self.gate, self.tools = path / "layouts", path / "gate", path / "tools"
        self.begun = path / "begun"
        self.tools.mkdir()
        make_image(self.roots / "box", [layer_of(make_root(path / "root"))], env={"IN": "image"})
        self.isolation = Isolation(image=f"oci:{self.roots}/box:latest")
        (self.tools / "umoci").symlink_to(program("umoci"))
        skopeo = self.tools / "skopeo"
        wait = f"touch {self.begun}; while ! test -e {self.gate}; do sleep 0.02; done"
        skopeo.write_text(f'#!/bin/sh\n{wait}\nexec {program("skopeo")} "$@"\n')
        skopeo.chmod(0o755)

    def flags(self, *levels: str) -> IsolationFlags:
        return IsolationFlags(
            isolation=(*levels, "container"),
            image_roots=(self.roots,),
            container_runtime=str(program("runc")),
        )

    def open(self) -> None:
        self.gate.touch()

    async def pulls(self) -> None:
        await eventually(self.begun.exists, 20, what="the pull begins")


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Images]:
    made = Images(tmp_path)
    try:
        find_runtime(tmp_path, str(program("runc")))
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no container starts here: {error}")
    monkeypatch.setenv("PATH", f"{made.tools}:{os.environ['PATH']}")
    yield made
    # Whatever waits for the gate ends.
    made.open()


async def test_a_task_waits_for_its_image_and_others_do_not(
    start: Start, master: ScriptedMaster, images: Images
) -> None:
    await start(isolate=images.flags("process"))
    await master.agent()
    master.launch(
        shell("boxed", 'test "$IN" = image && test -e /bin/busybox', isolation=images.isolation),
        shell("plain", "true"),
    )
    await images.pulls()
    await master.state("plain", FINISHED)
    assert master.states("boxed") == [TaskState.STARTING]
    images.open()
    await master.state("boxed", FINISHED)


async def test_a_kill_during_the_pull_ends_the_task_at_once(
    start: Start, master: ScriptedMaster, images: Images
) -> None:
    await start(isolate=images.flags())
    await master.agent()
    master.launch(shell("boxed", "true", isolation=images.isolation))
    await images.pulls()
    master.kill("boxed", grace_ms=60_000)
    end = await master.state("boxed", KILLED)
    assert end.message == "killed before it was started"


async def test_an_image_that_is_missing_is_told(
    start: Start, master: ScriptedMaster, images: Images
) -> None:
    images.open()
    serving = await start(isolate=images.flags())
    await master.agent()
    missing = Isolation(image=f"oci:{images.roots}/box:other")
    outside = Isolation(image="dir:/usr")
    master.launch(
        shell("missing", "true", isolation=missing), shell("outside", "true", isolation=outside)
    )
    end = await master.state("missing", FAILED)
    assert Reason(end.reason) is Reason.CONTAINER_LAUNCH_FAILED
    assert "the layout has no tag other" in end.message
    end = await master.state("outside", FAILED)
    assert "--image-roots" in end.message
    assert serving.agent.state.health.is_healthy, "the task is at fault"


async def test_an_agent_without_containers_refuses_images(
    serving: Serving, master: ScriptedMaster, images: Images
) -> None:
    master.launch(shell("boxed", "true", isolation=images.isolation))
    end = await master.state("boxed", TaskState.DROPPED)
    assert "images" in end.message


async def test_the_memory_of_a_container_is_limited(
    start: Start, master: ScriptedMaster, images: Images
) -> None:
    images.open()
    try:
        serving = await start(isolate=images.flags("process", "cgroup"))
    except Exception as error:
        pytest.skip(f"no control groups here: {error}")
    await master.agent()
    line = "x=x; while :; do x=$x$x; done"
    hog = shell("hog", line, resources="cpus:0.1;mem:32", isolation=images.isolation)
    honest = shell("honest", "sleep 1000", resources="cpus:0.1;mem:32", isolation=images.isolation)
    master.launch(honest, hog)
    end = await master.state("hog", FAILED, 60)
    assert Reason(end.reason) is Reason.MEMORY_LIMIT, end.message
    assert master.states("honest")[-1] is RUNNING
    assert serving.agent.state.health.is_healthy


@pytest.fixture
async def process(
    master: ScriptedMaster, tmp_path: Path, images: Images
) -> AsyncIterator[AgentProcess]:
    flags = ("--image-roots", str(images.roots), "--container-runtime", str(program("runc")))
    async with registered(master, tmp_path, *flags, isolation="container") as process:
        yield process


async def killed(process: AgentProcess) -> None:
    process.signal(signal.SIGKILL)
    assert await process.ended() == -signal.SIGKILL


async def test_the_next_agent_continues_a_pull_and_adopts_containers(
    process: AgentProcess, master: ScriptedMaster, images: Images, tmp_path: Path
) -> None:
    master.launch(shell("boxed", "sleep 1000 & wait", isolation=images.isolation))
    await images.pulls()
    await killed(process)
    images.begun.unlink()
    process.start()
    await images.pulls()
    images.open()
    pid = (await master.state("boxed", RUNNING, 30)).pid
    await killed(process)
    assert is_running(pid)
    process.start()
    register = (await master.agent(3)).register
    assert register is not None
    assert [task.latest.pid for task in register.tasks] == [pid]
    master.kill("boxed", grace_ms=0)
    await master.state("boxed", KILLED)
    assert not is_running(pid)
    left = tmp_path / "work/containers"
    await eventually(
        lambda: not [each for each in left.iterdir() if each.is_dir()], what="nothing is left"
    )
    assert not any((tmp_path / "work/images/pulling").glob("*"))


WAITS = "while ! test -e gate; do sleep 0.05; done; echo /proc/[0-9]*; exit 7"


@pytest.fixture
async def boxing(
    master: ScriptedMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AgentProcess]:
    """Return a registered agent that gives namespaces to each task."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tool('bwrap').parent}")
    # The directory of a test is below a private one: the task is of the agent's own account.
    async with registered(master, tmp_path, isolation="process,namespaces") as agent:
        yield agent


async def test_boxed_tasks_keep_running_and_their_true_ends_are_reported(
    boxing: AgentProcess, master: ScriptedMaster
) -> None:
    line = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    master.launch(shell("t1", WAITS), shell("t2", line), shell("t3", "kill -SEGV $$"))
    pids = [(await master.state(name, RUNNING)).pid for name in ("t1", "t2")]
    assert (await master.state("t3", FAILED)).signal == signal.SIGSEGV
    boxing.signal(signal.SIGKILL)
    await boxing.ended()
    boxing.start()
    register = (await master.agent(2)).register
    assert register is not None
    home = boxing.work_dir / "sandboxes" / F
    (home / "t1" / "gate").touch()
    assert (await master.state("t1", FAILED)).exit_code == 7
    assert (home / "t1" / "stdout").read_text() == "/proc/1 /proc/2\n"
    master.kill("t2", grace_ms=5000)
    end = await master.state("t2", KILLED)
    assert (end.pid, end.exit_code) == (pids[1], 9)
