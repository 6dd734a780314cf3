"""Shims killed, stopped and signalled at any moment: each task has one end, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGSTOP, SIGTERM

import pytest

from croupier.agent import supervisor
from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Started
from croupier.agent.shim import run_file, shim_process
from croupier.agent.shim.build import Shim
from tests.harness.supervisor_fixture import Ward, key
from tests.integration.shim.conftest import Doomed

TASKS = 80
LINES = (
    "exit 3",
    "setsid sleep 61 & sleep 0.01",
    "(setsid sleep 62 &); sleep 60",
    "sleep 60",
)


def marked(runs: Path) -> list[str]:
    """The processes of any task of the ward's."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"CROUPIER_TASK_RUN={runs}/".encode() in (path / "environ").read_bytes():
                found.append(path.name)
    return found


def hurt(ward: Ward, rng: random.Random) -> None:
    """Do something to one of the shims that live."""
    shims = ward.supervisor._keys
    if not shims:
        return
    shim = rng.choice(list(shims))
    with suppress(ProcessLookupError):
        match rng.randrange(5):
            case 0:
                os.kill(shim, SIGKILL)
            case 1:
                os.kill(shim, SIGSTOP)
            case 2:
                ward.supervisor.signal(shims[shim], SIGTERM)
            case 3:
                ward.supervisor.signal(shims[shim], SIGKILL)


@pytest.mark.parametrize("seed", range(3))
async def test_each_task_has_one_end_and_leaves_nothing(ward: Ward, seed: int) -> None:
    rng = random.Random(seed)
    names = [f"t{at}" for at in range(TASKS)]
    for name in names:
        ward.shell(name, rng.choice(LINES))
        for _ in range(2):
            await asyncio.sleep(rng.random() * 0.004)
            hurt(ward, rng)
    assert await ward.supervisor.end(60) == 0
    started = {report.key for report in ward.reports if isinstance(report, Started)}
    for name in names:
        end = await ward.ended(name)
        assert isinstance(end, Exited if key(name) in started else LaunchFailed)
    assert not marked(ward.runs)


async def test_who_dies_in_the_middle_of_a_sweep_does_not_hide_its_children(ward: Ward) -> None:
    script = ward.work / "chain"
    # Each link is of a session of its own and has the next for a child.
    script.write_text('[ "$1" -gt 0 ] && setsid sh "$0" $(($1 - 1)) & sleep 61 & wait')
    # Processes take their time to die where others want to run.
    for number in range(6):
        ward.shell(f"busy{number}", "while :; do :; done")
    names = [f"t{at}" for at in range(40)]
    for name in names:
        ward.shell(name, f"setsid sh {script} 14 & sleep 0.1")
    for name in names:
        assert await ward.ended(name) == Exited(key(name), 0)
    assert await ward.supervisor.end(60) == 0
    assert not marked(ward.runs)


class TestATaskThatStopsItsShim:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor, "CHECK_S", 0.1)
        monkeypatch.setattr(shim_process, "KILL_S", 0.5)

    async def test_is_known_to_run_and_can_be_ended(self, ward: Ward) -> None:
        # The shim stands still from its beginning, as a task that is quick can have it.
        words = ("/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *ward.shim.argv)
        stopped = Ward(ward.work, Shim(ward.shim.kind, words))
        for name in ("t1", "t2"):
            stopped.shell(name, "sleep 60")
        stopped.supervisor.signal(key("t2"), SIGKILL)
        for name in ("t1", "t2"):
            await stopped.started(name)
            stopped.supervisor.signal(key(name), SIGKILL)
            assert await stopped.ended(name) == Exited(key(name), signal=SIGKILL)
        stopped.supervisor.close()

    async def test_can_be_asked_to_end(self, ward: Ward) -> None:
        ward.shell("t1", "echo; sleep 60")
        await ward.started("t1")
        os.kill(ward.shim_of("t1"), SIGSTOP)
        ward.supervisor.signal(key("t1"), SIGTERM)
        assert await ward.ended("t1") == Exited(key("t1"), signal=SIGTERM)

    async def test_ends_truly(self, ward: Ward) -> None:
        ward.shell("t1", "sleep 0.2; kill -STOP $PPID; exit 3")
        await ward.started("t1")
        assert await ward.ended("t1") == Exited(key("t1"), exit_code=3)

    async def test_again_and_again_is_ended_all_the_same(self, ward: Ward) -> None:
        stops = 'import os\nos.setsid()\nwhile 1: os.kill(int(os.environ["SHIM"]), 19)'
        line = f"SHIM=$PPID setsid {sys.executable} -S -c '{stops}' & wait"
        ward.shell("t1", line)
        await asyncio.sleep(0.2)
        ward.supervisor.signal(key("t1"), SIGKILL)
        await ward.ended("t1")
        assert not marked(ward.runs)

    async def test_is_taken_over_by_the_next_agent(self, ward: Ward, doomed: Doomed) -> None:
        doomed(1, "sleep 60")
        # As if the shim had been stopped before it could say that the task runs.
        os.kill(ward.shim_of("t0"), SIGSTOP)
        path = ward.runs / "t0"
        whole = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(2 * run_file.LINE)
            file.write(b" " * run_file.LINE)
        thread = threading.Thread(target=_write_when_continued, args=(ward, path, whole))
        thread.start()
        assert isinstance(ward.adopt("t0"), Adopted)
        thread.join()


def _write_when_continued(ward: Ward, path: Path, content: bytes) -> None:
    """Play the part of a shim that goes on after it was stopped."""
    stat = Path(f"/proc/{ward.shim_of('t0')}/stat")
    deadline = time.monotonic() + 10
    while b") T " in stat.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.001)
    with path.open("r+b") as file:
        file.write(content)
