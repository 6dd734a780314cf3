"""Cost of commands beside tasks: bytes a second, the latency of an echo, and the master's loop.

    python -m tests.bench.exec [MEGABYTES] [ECHOES]

The master runs in this process; the agent and the callers have processes of their own. `lag` and
`busy` of the master's loop are those of `tests.bench.live_readers`. The echo is one byte to `cat`
and back, first alone and then while another command writes as fast as it can.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Any

from croupier.net.address import Address
from croupier.net.transport import make_channel
from croupier.v1 import exec_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.bench.live_readers import Loop
from tests.harness.masters import running_master
from tests.integration.master.test_task_files import launched

MEGABYTES, ECHOES = 512, 500


async def measure(megabytes: int, echoes: int, work: Path) -> None:
    """Print a line for each measurement."""
    async with running_master() as master:
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "croupier.agent", f"--master={master.address}"),
            *("--http=127.0.0.1:0", f"--work-dir={work}", "--isolation=process"),
            *("--resources=cpus:4;mem:1GB;disk:1GB", "--on-stop=end", "--log-level=error"),
        )
        try:
            async with launched(master, "sleep 3600") as framework:
                await framework.next("update")
                await _measure(str(master.address), megabytes, echoes)
        finally:
            agent.terminate()
            await agent.wait()


async def _measure(master: str, megabytes: int, echoes: int) -> None:
    size = megabytes << 20
    loop, begun = Loop(), time.monotonic()
    await _command(master, "head", f"-c{size}", "/dev/zero")
    took = time.monotonic() - begun
    _print("output", mb_per_s=round(megabytes / took, 1), **loop.result())
    loop = Loop()
    _print("echo", **await _echoes(master, echoes), **loop.result())
    flood = asyncio.create_task(_command(master, "cat", "/dev/zero"))
    loop = Loop()
    _print("echo beside a flood", **await _echoes(master, echoes), **loop.result())
    flood.cancel()
    with suppress(asyncio.CancelledError):
        await flood


async def _command(master: str, *words: str) -> None:
    """Run `croupier exec`; its output is dropped."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "croupier.ctl", "exec", f"--master={master}", "t1", "--", *words),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _echoes(master: str, number: int) -> dict[str, Any]:
    """Measure echoes in another process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.exec", "echo", master, str(number)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    found: dict[str, Any] = json.loads(out)
    return found


async def echo(master: Address, number: int) -> None:
    """Print the latencies of echoes, in milliseconds."""
    async with make_channel(master) as channel:
        call: Any = OperatorServiceStub(channel).ExecTask()
        command = exec_pb2.ExecCommand(argv=["cat"], has_input=True)
        await call.write(
            pb.ExecTaskRequest(start=exec_pb2.ExecStart(task_id="t1", command=command))
        )
        assert (await call.read()).HasField("started")
        took = []
        for _ in range(number):
            begun = time.perf_counter()
            await call.write(pb.ExecTaskRequest(input=b"x"))
            assert (await call.read()).output == b"x"
            took.append((time.perf_counter() - begun) * 1000)
        call.cancel()
    cuts = quantiles(took, n=100)
    print(json.dumps({"echo_p50_ms": round(cuts[49], 2), "echo_p99_ms": round(cuts[98], 2)}))


def _print(what: str, **figures: Any) -> None:
    print(json.dumps({"bench": f"exec: {what}", "cpus": os.cpu_count(), **figures}), flush=True)


def main(argv: list[str]) -> None:
    """Measure, or be the caller that does."""
    if argv[:1] == ["echo"]:
        asyncio.run(echo(Address.parse(argv[1]), int(argv[2])))
        return
    numbers = [*map(int, argv), *(MEGABYTES, ECHOES)[len(argv) :]]
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(numbers[0], numbers[1], Path(directory) / "work"))


if __name__ == "__main__":
    main(sys.argv[1:])
