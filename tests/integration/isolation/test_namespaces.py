"""Tasks in namespaces that bubblewrap makes: their ends, what they see, and what they cannot do."""

from __future__ import annotations

import os
import platform
import signal
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from croupier.agent.core.events import Adopted, Exited, LaunchFailed
from croupier.agent.isolation.assembly import assemble
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Setting
from croupier.agent.isolation.process import ROOT_KEPT
from croupier.agent.shim.build import Shim
from croupier.model.isolation import Feature, Limits
from croupier.model.preemption import CHECKPOINT_SIGNALS
from croupier.model.task import Reason
from tests.harness.boxed_tasks import NO_NETWORK, Boxes, sleepers
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.limited_tasks import AT_ONCE, TOTAL
from tests.harness.supervisor_fixture import TaskRunner, key

# What would change nothing if it succeeded.
SAME_CORE_PATTERN = "cp /proc/sys/kernel/core_pattern t; cat t > /proc/sys/kernel/core_pattern"
# Each of the two file systems takes half of a limit of 32 MiB.
FILL_TMP = "head -c 40m /dev/zero >/tmp/a; head -c 40m /dev/zero >/dev/shm/b; sleep 1; exit 3"
IS_ROOT = os.geteuid() == 0
# For x86_64 and aarch64: a filter in which `uname` answers EPERM.
_UNAME = {"x86_64": 63, "aarch64": 160}.get(platform.machine(), 63)
NO_UNAME = b"".join(
    struct.pack("=HBBI", *each)
    for each in ((0x20, 0, 0, 0), (0x15, 0, 1, _UNAME), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000))
)
# An agent that is not root has the second only.
WAYS = ["root", "user namespace"][not IS_ROOT :]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, shim: Shim) -> tuple[Shim, bool]:
    return shim, request.param == "root"


@pytest.fixture
async def boxes(tmp_path: Path, way: tuple[Shim, bool]) -> AsyncIterator[Boxes]:
    boxes = Boxes(tmp_path, way[0], by_root=way[1])
    yield boxes
    await close(boxes.runner)


async def close(runner: TaskRunner) -> None:
    left = await runner.supervisor.end(10)
    runner.supervisor.close()
    assert left == 0


async def test_ends_are_told_as_without_a_box(boxes: Boxes) -> None:
    ends = {
        "exit 0": Exited(key("t1"), 0),
        "exit 143": Exited(key("t2"), 143),
        "kill -TERM $$": Exited(key("t3"), None, signal.SIGTERM),
        "kill -KILL $$": Exited(key("t4"), None, signal.SIGKILL),
        "kill -SEGV $$": Exited(key("t5"), None, signal.SIGSEGV),
    }
    for number, (line, expected) in enumerate(ends.items(), 1):
        boxes.start(f"t{number}", "/bin/sh", "-c", line)
        end = await boxes.runner.ended(f"t{number}")
        assert isinstance(end, Exited)
        assert (end.exit_code, end.signal) == (expected.exit_code, expected.signal), line


async def test_tasks_of_a_group_share_a_directory(boxes: Boxes, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for number in (1, 2):
        line = f"cat {shared}/*; echo hello > {shared}/{number}"
        boxes.start(f"t{number}", "/bin/sh", "-c", line, shared=(str(shared),))
        await boxes.runner.ended(f"t{number}")
    assert boxes.runner.printed("t2") == "hello\n"
    assert sorted(path.name for path in shared.iterdir()) == ["1", "2"]


async def test_programs_that_cannot_run_are_told_as_without_a_box(boxes: Boxes) -> None:
    boxes.start("t1", "no-such-program")
    boxes.start("t2", "/etc/passwd")
    missing, denied = await boxes.runner.ended("t1"), await boxes.runner.ended("t2")
    assert isinstance(missing, LaunchFailed)
    assert missing.message == (
        "cannot run 'no-such-program': no such program, or its interpreter is missing"
    )
    assert (missing.exit_code, missing.cause) == (127, "")
    assert isinstance(denied, LaunchFailed)
    assert (denied.exit_code, denied.cause) == (126, "")
    assert denied.message == "cannot run '/etc/passwd': permission denied: it is not executable"


async def test_a_box_that_cannot_be_made_is_a_failure_of_the_agent(boxes: Boxes) -> None:
    boxes.start("t1", "/bin/true", read_only=("/nonexistent/directory",))
    end = await boxes.runner.ended("t1")
    assert isinstance(end, LaunchFailed)
    assert end.message == "cannot isolate the task: bubblewrap failed; stderr of the task tells why"
    assert end.cause
    assert "/nonexistent/directory" in (boxes.runner.home("t1") / "stderr").read_text()


async def test_sigterm_reaches_the_task_which_has_its_grace(boxes: Boxes) -> None:
    line = "trap 'sleep 0.3; echo bye; exit 3' TERM; touch ready; while :; do sleep 0.05; done"
    boxes.start("t1", "/bin/sh", "-c", line)
    boxes.start("t2", "/bin/sh", "-c", "touch ready; exec sleep 60")
    for name in ("t1", "t2"):
        await boxes.runner.started(name)
        await eventually((boxes.runner.home(name) / "ready").exists)
        boxes.runner.supervisor.signal(key(name), signal.SIGTERM)
    assert await boxes.runner.ended("t1") == Exited(key("t1"), 3)
    assert boxes.runner.printed("t1") == "bye\n"
    assert await boxes.runner.ended("t2") == Exited(key("t2"), None, signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.Signals(each) for each in CHECKPOINT_SIGNALS])
async def test_the_signal_to_save_its_state_reaches_the_task(
    boxes: Boxes, number: signal.Signals
) -> None:
    name = number.name.removeprefix("SIG")
    line = f"trap 'exit 7' {name}; touch ready; while :; do sleep 0.05; done"
    boxes.start("t1", "/bin/sh", "-c", line)
    await boxes.runner.started("t1")
    await eventually((boxes.runner.home("t1") / "ready").exists)
    boxes.runner.supervisor.signal(key("t1"), number)
    assert await boxes.runner.ended("t1") == Exited(key("t1"), 7)


async def test_a_sigterm_at_the_start_is_not_lost(boxes: Boxes) -> None:
    boxes.start("t1", "sleep", "60")
    boxes.runner.supervisor.signal(key("t1"), signal.SIGTERM)
    assert await boxes.runner.ended("t1") == Exited(key("t1"), None, signal.SIGTERM)


async def test_a_kill_ends_all_of_a_box(boxes: Boxes) -> None:
    line = (
        "trap '' TERM; (setsid env -i sleep 4713 &); (sleep 4713 &); touch ready; exec sleep 4713"
    )
    boxes.start("t1", "/bin/sh", "-c", line)
    await eventually((boxes.runner.home("t1") / "ready").exists)
    boxes.runner.supervisor.signal(key("t1"), signal.SIGKILL)
    assert await boxes.runner.ended("t1") == Exited(key("t1"), None, signal.SIGKILL)
    assert not sleepers("4713")


async def test_nothing_outlives_a_shim_that_is_killed(boxes: Boxes) -> None:
    boxes.start("t1", "/bin/sh", "-c", "(setsid env -i sleep 4714 &); touch ready; exec sleep 4714")
    await boxes.runner.started("t1")
    await eventually((boxes.runner.home("t1") / "ready").exists)
    os.kill(boxes.runner.shim_of("t1"), signal.SIGKILL)
    end = await boxes.runner.ended("t1")
    assert isinstance(end, Exited)
    assert end.unknown
    await eventually(lambda: not sleepers("4714"))


async def test_the_next_agent_adopts_a_boxed_task(boxes: Boxes) -> None:
    boxes.start(
        "t1", "/bin/sh", "-c", "trap 'exit 7' TERM; touch ready; while :; do sleep 0.05; done"
    )
    pid = await boxes.runner.started("t1")
    await eventually((boxes.runner.home("t1") / "ready").exists)
    boxes.runner.supervisor.close()
    following = TaskRunner(boxes.runner.work, boxes.runner.shim)
    adopted = following.adopt("t1")
    assert isinstance(adopted, Adopted)
    assert adopted.pid == pid
    following.supervisor.signal(key("t1"), signal.SIGTERM)
    assert await following.ended("t1") == Exited(key("t1"), 7)
    boxes.runner = following


async def test_a_task_is_itself_and_its_output_environment_and_descriptors_are_as_usual(
    boxes: Boxes,
) -> None:
    line = "id -u; pwd; ls /proc/self/fd; env; umask; ps -o pid,pgid,sid -p $$ --no-headers"
    text = await boxes.printed(line)
    uid = 65534 if IS_ROOT else os.geteuid()
    lines = text.splitlines()
    assert lines[:6] == [str(uid), str(boxes.runner.home("t1")), "0", "1", "2", "3"]
    names = {line.partition("=")[0] for line in lines[6:] if "=" in line}
    assert names == {"PATH", "PWD", "CROUPIER_TASK_RUN"}
    # It leads a session and group of its own.
    assert lines[-1].split() == ["2", "2", "2"]


async def test_only_the_processes_of_the_box_are_there(boxes: Boxes) -> None:
    text = await boxes.printed("ls -d /proc/[0-9]*; kill -9 1; kill -9 -1; echo lives")
    assert "/proc/1\n/proc/2\n" in text
    assert len([line for line in text.splitlines() if line.startswith("/proc/")]) <= 4
    assert "lives" in text or text.splitlines()[-1].startswith("/proc/")


async def test_kill_minus_one_reaches_only_the_box(boxes: Boxes) -> None:
    boxes.start("honest", "sleep", "60")
    await boxes.runner.started("honest")
    boxes.start("t1", "/bin/sh", "-c", "sleep 60 & kill -9 -1; exit 5")
    await boxes.runner.ended("t1")
    boxes.runner.supervisor.signal(key("honest"), signal.SIGTERM)
    assert await boxes.runner.ended("honest") == Exited(key("honest"), None, signal.SIGTERM)


async def test_tmp_and_shm_are_private_and_bounded(boxes: Boxes) -> None:
    marked = Path("/tmp") / f"marked-by-{os.getpid()}"
    line = (
        f"ls -A /var/tmp/ /dev/shm/; echo own > {marked}; cat {marked};"
        " echo own > /dev/shm/own; head -c 40000000 /dev/zero > /dev/shm/large;"
        " stat -c %s /dev/shm/large; stat -c %a /tmp"
    )
    boxes.start("t1", "/bin/sh", "-c", f"exec 2>&1; {line}", resources="mem:32MB")
    await boxes.runner.ended("t1")
    text = boxes.runner.printed("t1")
    listed, own, _ = text.partition("\nown\n")
    assert own, text
    shm, tmp = listed.split("\n\n")
    assert shm == "/dev/shm/:"
    # Only the directories above its sandbox, and above the shim if that is in /tmp.
    known = (boxes.runner.work, Path(__file__))
    above = {each.parts[2] for each in known if each.parts[1] == "tmp"}
    assert set(tmp.splitlines()) <= {"/var/tmp/:", *above}
    # 16 MiB less the page of the other file.
    assert f"\n{(16 << 20) - 4096}\n1777\n" in text
    assert not marked.exists()
    assert not Path("/dev/shm/own").exists()


async def test_the_system_is_read_only(boxes: Boxes) -> None:
    places = ("/", "/usr", "/etc", "/opt", "/dev", "/run", "/var", "/proc/sys/kernel", "/sys")
    line = "; ".join(f"touch {place}/made && echo made {place}" for place in places)
    text = await boxes.printed(f"{line}; touch made && echo sandbox")
    assert [each for each in text.splitlines() if "cannot touch" not in each] == ["sandbox"]


async def test_what_is_hidden(boxes: Boxes, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.log").write_text("secret")
    text = await boxes.printed(
        f"ls -A /run /root /home /mnt /boot; ls -A {tmp_path}; ls -A {tmp_path}/sandboxes/F1;"
        " ls /sys /sys/devices"
    )
    assert "checkpoint" not in text
    assert "runs" not in text.splitlines()
    assert "t1" in text.splitlines()
    for place in ("root", "home", "mnt", "boot"):
        assert f"cannot access '/{place}'" in text, text
    assert text.endswith("/sys:\ndevices\n\n/sys/devices:\nsystem\n"), text


async def test_sockets_of_the_machine_are_out_of_reach(boxes: Boxes, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "control"))
        server.listen()
        (tmp_path / "control").chmod(0o777)
        text = await boxes.printed(f"ls {tmp_path}/control; find / -xdev -type s 2>/dev/null")
        assert "cannot access" in text
        assert len(text.splitlines()) == 1


async def test_no_network(boxes: Boxes) -> None:
    line = "cat /proc/net/dev | tail -n +3; cat /proc/net/route | tail -n +2; ls /sys/class 2>&1"
    text = await boxes.printed(line, isolation=NO_NETWORK)
    assert text.split(":")[0].strip() == "lo"
    assert len(text.splitlines()) == 2
    more = await boxes.printed(
        "cat /proc/net/if_inet6 /proc/net/fib_trie", name="t2", isolation=NO_NETWORK
    )
    assert "127.0.0.1" in more, "the loopback interface is up"


ATTEMPTS = (
    "mount -t tmpfs none /tmp",
    "mount -o remount,rw /usr",
    "umount /usr",
    "umount -l /tmp",
    "unshare -m true",
    "nsenter -t 1 -m true",
    "ls /proc/1/root/root",
    "cat /proc/1/environ",
    "ls /proc/1/fd",
    "chroot / true",
    "mknod device b 8 0",
    SAME_CORE_PATTERN,
    "echo h > /proc/sysrq-trigger",
    "hostname other",
    "cat /proc/kcore",
)


async def test_escapes_fail(boxes: Boxes) -> None:
    line = "; ".join(
        f"(eval '{each}') >out 2>&1 && echo 'escaped: {each}';"
        f" test -s out || echo 'no error: {each}'"
        for each in ATTEMPTS
    )
    assert await boxes.printed(f"{line}; echo all tried") == "all tried\n"


@pytest.mark.skipif(not IS_ROOT, reason="only an agent that is root runs tasks as root")
@pytest.mark.parametrize("way", ["root"], indirect=True)
async def test_root_in_a_box_keeps_few_capabilities_and_sees_no_passwords(
    tmp_path: Path, way: tuple[Shim, bool]
) -> None:
    boxes = Boxes(tmp_path, way[0], by_root=True)
    boxes.user = None
    try:
        attempts = (
            "cat /etc/shadow",
            "mount -t tmpfs none /mnt",
            "mount -o remount,rw /",
            "umount -l /tmp",
            SAME_CORE_PATTERN,
            "echo h > /proc/sysrq-trigger",
            "readlink /proc/1/fd/3",
            "ls /proc/1/root/",
            "nsenter -t 1 -m true",
            "chroot / true",
            "unshare -m true",
            "mknod device b 8 0",
        )
        line = "; ".join(f"({each}) >out 2>&1 && echo escaped '{each}'" for each in attempts)
        text = await boxes.printed(f"id -u; grep -E 'CapEff|NoNew' /proc/self/status; {line}; true")
        assert text.split() == ["0", "CapEff:", "00000000000004fb", "NoNewPrivs:", "1"]
    finally:
        await close(boxes.runner)


async def test_in_a_user_namespace_no_further_ones_can_be_made(tmp_path: Path, shim: Shim) -> None:
    boxes = Boxes(tmp_path, shim, by_root=False)
    try:
        text = await boxes.printed("unshare -U true && echo made; grep CapBnd /proc/self/status")
        assert "made" not in text
        assert text.splitlines()[-1].split() == ["CapBnd:", "0" * 16]
    finally:
        await close(boxes.runner)


async def test_the_filter_of_system_calls_is_installed(boxes: Boxes, tmp_path: Path) -> None:
    (tmp_path / "filter").write_bytes(NO_UNAME)
    boxes.start("t1", "uname", options=(f"seccomp={tmp_path}/filter",))
    end = await boxes.runner.ended("t1")
    assert isinstance(end, Exited)
    assert end.exit_code != 0
    assert "not permitted" in (boxes.runner.home("t1") / "stderr").read_text()


@pytest.mark.parametrize("way", ["root"], indirect=True)
async def test_all_processes_of_a_box_are_held_to_the_limits_of_its_task(
    tmp_path: Path, way: tuple[Shim, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program("bwrap").parent), prepend=os.pathsep)
    flags = IsolationFlags(
        isolation=("process", "cgroup", "namespaces"), default_limits=Limits(pids=100)
    )
    layers = assemble(Setting(flags, TOTAL, tmp_path, way[0]))
    if Feature.MEMORY not in layers.features:
        pytest.skip("control groups of memory cannot be made here")
    runner = TaskRunner(tmp_path, way[0], isolation=layers)
    try:
        runner.limited("hog", AT_ONCE, "mem:32MB")
        await check_memory_limit(runner, "hog")
        runner.limited("full", FILL_TMP, "mem:32MB")
        await check_memory_limit(runner, "full")
        line = "for i in $(seq 40); do sleep 60 & done; wait"
        runner.limited("bomb", line, "mem:32MB", Limits(pids=12))
        end = await runner.measured("bomb")
        assert isinstance(end, Exited)
        assert end.exit_code == 2, "the shell cannot fork"
        runner.limited("strict", "grep -E '^(Seccomp|NoNewPrivs|CapBnd):' /proc/self/status", "")
        await runner.ended("strict")
        found = dict(each.split(":\t") for each in runner.printed("strict").splitlines())
        assert found["NoNewPrivs"] == "1"
        assert found["Seccomp"] == "2"
        assert int(found["CapBnd"], 16) == (ROOT_KEPT if IS_ROOT else 0)
    finally:
        await close(runner)
        for name in ("hog", "full", "bomb", "strict"):
            layers.forget(name)
        layers.close()


async def check_memory_limit(runner: TaskRunner, name: str) -> None:
    end = await runner.measured(name)
    assert isinstance(end, Exited)
    assert end.ending.exceeded is not None, end
    assert end.ending.exceeded.reason is Reason.MEMORY_LIMIT
    assert not end.unknown
