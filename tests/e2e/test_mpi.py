"""A program of a real MPI in a gang, by the launcher of the tutorial, on hosts without ssh."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.harness.cluster import processes_with, real_cluster
from tests.harness.command import ended, started
from tests.harness.eventually import eventually
from tests.harness.mpi import BIN, require_mpi
from tests.harness.shell_blocks import blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TUTORIAL: Final = Path(__file__).resolve().parents[2] / "docs/tutorials/mpi.md"
# Names of hosts are no addresses here. So they meet at an address of this test alone.
HERE: Final = f"127.{os.getpid() // 256 % 256}.{os.getpid() % 256}.2"
# At their first start all ranks add, and then hang, as if they worked for long.
PROGRAM: Final = """
import os, pathlib, time
from mpi4py import MPI
world = MPI.COMM_WORLD
half = world.allreduce(sum(range(world.rank, 500, world.size)))
begun = pathlib.Path(os.environ["BEGUN"])
if not list(begun.glob(f"{world.rank}.*")):
    (begun / f"{world.rank}.{os.getpid()}").touch()
    time.sleep(3600)
total = half + world.allreduce(sum(range(500 + world.rank, 1001, world.size)))
if world.rank == 0:
    print("sum", total, "of", world.size, flush=True)
"""


async def test_an_mpi_program_whose_rank_is_killed_starts_again(tmp_path: Path) -> None:
    require_mpi()
    (launcher,) = (each for each in blocks(TUTORIAL.read_text()) if each.saved_as == "gang_mpi.py")
    script, program, begun = tmp_path / "gang_mpi.py", tmp_path / "sum.py", tmp_path / "begun"
    script.write_text(launcher.text)
    script.chmod(0o755)
    program.write_text(PROGRAM)
    begun.mkdir()
    variables = {
        "BEGUN": str(begun),
        "GANG_KEY": "of-this-test",
        "MASTER_ADDR": HERE,
        # Hosts are one machine here, but tasks of different hosts share no memory.
        "UCX_TLS": "self,sysv,tcp",
        "PATH": os.pathsep.join((str(BIN), os.environ["PATH"])),
    }
    given = [word for name, text in variables.items() for word in ("--env", f"{name}={text}")]
    async with real_cluster(tmp_path, *["cpus:1;mem:1GB"] * 4) as cluster:
        argv = ["run", "--master", cluster.master, "--nodes", "4", "--restarts", "1", *given]
        async with started(*argv, "--", str(script), "python3", str(program)) as run:
            await eventually(lambda: len(list(begun.iterdir())) == 4, 90, what="all ranks add")
            (rank_2,) = begun.glob("2.*")
            os.kill(int(rank_2.suffix.removeprefix(".")), signal.SIGKILL)
            done = await ended(run, 120)
        # A line of MPICH may tell of the rank that was killed.
        found = [line for line in done.out.splitlines() if "sum" in line]
        assert (done.code, found) == (0, ["[0] sum 500500 of 4"]), done
        await eventually(lambda: not processes_with(str(begun)), 60, what="all processes ended")
