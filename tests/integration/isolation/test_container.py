"""Tasks in real containers of runc: what they see, how they end, and what is left."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

import pytest

from croupier.agent.core.events import Adopted, Exited
from croupier.agent.isolation.container import Container
from croupier.agent.isolation.container_runtime import Runtime, find_runtime
from croupier.agent.isolation.image_store import ImageStore
from croupier.agent.isolation.isolator import Launch
from croupier.agent.shim.build import Shim, prepare_shim
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.isolation import Isolation
from croupier.model.preemption import CHECKPOINT_SIGNALS
from croupier.model.task import Command, TaskInfo
from tests.harness.container_tools import image_tools
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.exec_levels import lasting
from tests.harness.oci_image import make_root
from tests.harness.supervisor_fixture import TaskRunner, key, launch_of

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shim, Runtime]:
    """The compiled programs; the runtime has started a container for trial."""
    directory = tmp_path_factory.mktemp("programs")
    try:
        runtime = find_runtime(directory, str(program("runc")))
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no container starts here: {error}")
    return prepare_shim(directory), runtime


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(tmp_path_factory.mktemp("images") / "box")


class Containers(TaskRunner):
    """Starts tasks in containers; the run of a task has the name of the task."""

    def __init__(self, work: Path, shim: Shim, runtime: Runtime, root: Path) -> None:
        super().__init__(work, shim)
        (work / "containers").mkdir(exist_ok=True)
        (work / "images").mkdir(exist_ok=True)
        store = ImageStore(work / "images", image_tools(), 10**9, work / "containers")
        self.isolator = Container(work, runtime, store, (root.parent,))
        self.root = root

    def begin(
        self,
        name: str,
        line: str,
        *,
        image: str = "",
        user: UnixUser | None = None,
        no_network: bool = False,
        options: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start a shell line in a container."""
        launch = launch_of(name, "/bin/sh", "-c", line)
        info = replace(
            launch.info,
            isolation=Isolation(image=image or f"dir:{self.root}", no_network=no_network),
        )
        given = {"PATH": "/bin"} | (environment or {})
        launch = replace(launch, info=info, user=user, options=options, environment=given)
        with self.sandboxes.create(key(name), user, again=True) as sandbox:
            launch = replace(launch, sandbox=sandbox.path)
            self.supervisor.spawn(self.isolator.prepare(launch), sandbox)

    async def ran(self, name: str, line: str, **settings: object) -> tuple[int | None, str]:
        """Run a shell line in a container to its end; return its exit code and its output."""
        self.begin(name, line, **settings)  # type: ignore[arg-type]
        end = await self.ended(name)
        assert isinstance(end, Exited), end
        return end.exit_code, self.printed(name)

    def errors(self, name: str) -> str:
        return (self.home(name) / "stderr").read_text()


@pytest.fixture
async def box(tmp_path: Path, parts: tuple[Shim, Runtime], root: Path) -> AsyncIterator[Containers]:
    runner = Containers(tmp_path, *parts, root)
    yield runner
    await runner.supervisor.end(10)
    runner.supervisor.close()


async def test_a_task_runs_in_the_files_of_its_image_with_its_own_processes(
    box: Containers,
) -> None:
    code, output = await box.ran("t1", "ls /bin/busybox; echo pid $$; ps | wc -l; exit 3")
    assert code == 3
    assert output.splitlines()[0] == "/bin/busybox"
    # init, the shell, ps and wc with a heading
    assert int(output.splitlines()[2]) <= 5


async def test_its_sandbox_is_writable_and_its_image_is_not(box: Containers) -> None:
    line = "pwd; echo x >file && echo y >/etc/new; echo z >/bin/busybox; echo $?; id -u"
    code, output = await box.ran("t1", line)
    assert code == 0
    assert output.splitlines() == [str(box.home("t1")), "1", "0"]
    assert (box.home("t1") / "file").read_text() == "x\n"
    assert "Read-only file system" in box.errors("t1")
    assert not (box.root / "etc/new").exists()


async def test_it_has_the_variables_of_the_task_and_none_of_the_runtime(box: Containers) -> None:
    variables = {"NAME": "a b\n\"c'", "LD_PRELOAD": "/nowhere.so"}
    code, output = await box.ran("t1", 'printf "%s" "$NAME"; exit 0', environment=variables)
    assert (code, output) == (0, variables["NAME"])
    left = box.work / "containers" / "t1"
    assert "nowhere" not in (left / "config.json").read_text(), "no variable is on the disk"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_it_runs_as_its_user_without_rights_of_its_own(box: Containers) -> None:
    user = UnixUser("nobody", NOBODY.pw_uid, NOBODY.pw_gid, (NOBODY.pw_gid,))
    line = "id -u; touch mine; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status"
    code, output = await box.ran("t1", line, user=user)
    assert code == 0
    uid, *facts = output.split("\n")
    assert int(uid) == NOBODY.pw_uid
    assert [each.split()[-1] for each in facts if each] == ["0" * 16, "0" * 16, "1", "2"]
    assert (box.home("t1") / "mine").stat().st_uid == NOBODY.pw_uid


async def test_without_network_it_has_the_loopback_interface_only(box: Containers) -> None:
    code, output = await box.ran("t1", "ls /sys/class/net", no_network=True)
    assert (code, output) == (0, "lo\n")


async def test_limits_and_umask_of_the_shim_hold_in_it(box: Containers) -> None:
    options = ("limit=7:77:88", "umask=27", "bounding=0")
    code, output = await box.ran("t1", "ulimit -n; ulimit -Hn; umask", options=options)
    assert (code, output.split()) == (0, ["77", "88", "0027"]), box.errors("t1")


async def test_devices_and_groups_of_the_machine_are_out_of_reach(box: Containers) -> None:
    line = (
        "mknod disk b 254 0; mount -t tmpfs none /tmp; unshare -U true; chroot / true; cat"
        " /dev/disk; ls /sys/fs/cgroup; kill -9 1; ls /proc | grep -c '^[0-9]'"
    )
    code, output = await box.ran("t1", line)
    assert code == 0
    assert int(output.split()[-1]) <= 5
    assert not (box.home("t1") / "disk").exists()


async def test_a_program_that_is_missing_is_told(box: Containers) -> None:
    launch = launch_of("t1", "no-such-program")
    info = replace(launch.info, isolation=Isolation(image=f"dir:{box.root}"))
    with box.sandboxes.create(key("t1")) as sandbox:
        launch = replace(launch, info=info, sandbox=sandbox.path)
        box.supervisor.spawn(box.isolator.prepare(launch), sandbox)
    end = await box.ended("t1")
    assert isinstance(end, Exited)
    assert end.exit_code == 127
    assert "cannot run no-such-program in the image" in box.errors("t1")


async def test_a_signal_that_ends_it_is_told(box: Containers) -> None:
    box.begin("t1", "kill -SEGV $$")
    end = await box.ended("t1")
    assert isinstance(end, Exited)
    assert (end.exit_code, end.signal) == (None, 11)


async def test_sigterm_reaches_the_program_and_sigkill_ends_all(box: Containers) -> None:
    box.begin("polite", "trap 'echo bye; exit 5' TERM; touch ready; while :; do sleep 0.1; done")
    box.begin("plain", "touch ready; exec sleep 1000")
    box.begin("rude", "trap '' TERM; touch ready; sleep 1000 & sleep 1000")
    for name in ("polite", "plain", "rude"):
        await eventually((box.home(name) / "ready").exists, 20, what=f"{name} runs")
        box.supervisor.signal(key(name), SIGTERM)
    polite, plain = await box.ended("polite"), await box.ended("plain")
    assert isinstance(polite, Exited)
    assert isinstance(plain, Exited)
    assert (polite.exit_code, box.printed("polite")) == (5, "bye\n")
    assert plain.signal == SIGTERM
    box.supervisor.signal(key("rude"), SIGKILL)
    rude = await box.ended("rude")
    assert isinstance(rude, Exited)
    assert rude.signal == SIGKILL


@pytest.mark.parametrize("number", [Signals(each) for each in CHECKPOINT_SIGNALS])
async def test_the_signal_to_save_its_state_reaches_the_program(
    box: Containers, number: Signals
) -> None:
    name = number.name.removeprefix("SIG")
    box.begin("t1", f"trap 'exit 7' {name}; touch ready; while :; do sleep 0.1; done")
    await eventually((box.home("t1") / "ready").exists, what="it runs")
    box.supervisor.signal(key("t1"), number)
    assert await box.ended("t1") == Exited(key("t1"), 7)


async def test_nothing_is_left_of_it(box: Containers) -> None:
    before = lasting(Path("/proc/self/mountinfo").read_text())
    await box.ran("t1", "true")
    assert lasting(Path("/proc/self/mountinfo").read_text()) == before
    assert list((box.work / "containers" / "t1/mount").iterdir()) == []
    box.isolator.forget("t1")
    box.isolator.forget("t1")
    assert list((box.work / "containers").iterdir()) == []


async def test_the_next_agent_adopts_it(
    box: Containers, parts: tuple[Shim, Runtime], root: Path
) -> None:
    box.begin("t1", "touch ready; sleep 1000 & wait; exit 4")
    await eventually((box.home("t1") / "ready").exists, 20, what="it runs")
    pid = await box.started("t1")
    box.supervisor.close()
    later = Containers(box.work, *parts, root)
    later.isolator.clean({"t1"})
    assert later.adopt("t1") == Adopted(key("t1"), pid)
    later.supervisor.signal(key("t1"), SIGKILL)
    end = await later.ended("t1")
    assert isinstance(end, Exited)
    assert end.signal == SIGKILL
    later.isolator.clean(())
    assert list((box.work / "containers").iterdir()) == []
    later.supervisor.close()
    box.supervisor = Containers(box.work, *parts, root).supervisor


@pytest.mark.parametrize("image", ["dir:/", "dir:/etc", "dir:relative", "dir:{root}/../../.."])
def test_a_root_directory_that_is_not_allowed_is_refused(box: Containers, image: str) -> None:
    with pytest.raises(InvalidRequest):
        box.begin("t1", "true", image=image.format(root=box.root))


def test_a_link_out_of_the_allowed_directories_is_refused(box: Containers) -> None:
    link = box.root.parent / "link"
    link.symlink_to("/etc")
    with pytest.raises(InvalidRequest, match="a link leads out"):
        box.begin("t1", "true", image=f"dir:{link}")
    link.unlink()


def test_a_task_without_an_image_is_left_alone(box: Containers) -> None:
    launch = Launch("t1", key("t1"), TaskInfo(key("t1")[1], Command(("x",)), {}), "", ("x",), {})  # type: ignore[arg-type]
    assert box.isolator.prepare(launch) is launch
