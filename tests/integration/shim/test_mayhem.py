"""Shims killed, stopped and signalled at any moment: each task has one end, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGSTOP, SIGTERM

import pytest

from croupier.agent.core.events import Exited, LaunchFailed, Started
from tests.harness.ward import Ward, key

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
