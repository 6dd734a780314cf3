"""Storms of out-of-order messages against a master without authentication, for hours.

    python -m tests.fuzz.storm --minutes 60 --keep FOLDER
    python -m tests.fuzz.storm --minutes 60 --stderr full

A storm is legal and illegal messages on many streams at once, in any order: calls before SUBSCRIBE,
several SUBSCRIBEs and REGISTERs, numbers that fall, and streams that end in the middle. The master
is a process as an operator starts it, and none of its faults is expected. `--stderr` is a file, a
pipe whose reader ends (dead) or a full device (full). The folder keeps the master's output, its
exit code and the seed of each storm. The exit code is 1 if the master ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import grpc.aio

from croupier.net.address import Address
from croupier.net.transport import free_addresses, make_channel
from croupier.v1 import operator_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.fuzz.attack import Problem
from tests.fuzz.cases import Case
from tests.fuzz.contract import all_methods
from tests.fuzz.grpc_attacks import StreamAttack, make_attack
from tests.fuzz.openers import OPENERS
from tests.harness.eventually import eventually

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 60.0
END_S: Final = 30.0
# Streams at once, and streams of one storm.
AT_ONCE: Final = 20
STREAMS: Final = 60
# Storms of one life of the master; then it is stopped in order, and the next one starts.
STORMS_OF_LIFE: Final = 10
STDERR: Final = ("file", "dead", "full")


class OutOfOrder(StreamAttack):
    """Streams whose legal beginning comes anywhere, several times or never."""

    async def run(self, case: Case) -> None:
        """Send requests in a random order, and end the stream in one of several ways."""
        requests: list[tuple[bytes, int]] = []
        call = await self._open()
        for _ in range(self.rng.randint(1, 30)):
            request, count = self._request()
            requests.append((self._encoded(request), count))
        for _ in range(self.rng.choice((0, 1, 1, 2, 5))):
            openers = OPENERS[self._method.path](self.messages, self.values)
            requests.extend((opener.SerializeToString(), 1) for opener in openers)
        self.rng.shuffle(requests)
        listening = asyncio.create_task(self._listen(call))
        try:
            for data, count in requests:
                await self._send(call, case, data, count)
            await self._end(call)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            pass
        finally:
            await self._settle(call, listening)


class Master:
    """A master as an operator starts it."""

    def __init__(self, folder: Path, stderr: str) -> None:
        self.folder = folder
        self._reader: subprocess.Popen[bytes] | None = None
        self.address, http = free_addresses(2)
        words = [
            sys.executable, "-m", "croupier.master", "--listen", str(self.address),
            "--http", str(http), "--store", f"sqlite:{folder / 'master.db'}",
            "--log-level", "debug",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        with self._sink(stderr) as sink:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=ROOT, env=environment
            )

    def end_reader(self) -> None:
        """End the reader of the master's output, if it has one."""
        if self._reader is not None:
            self._reader.kill()
            self._reader.wait()

    def _sink(self, stderr: str) -> IO[bytes]:
        if stderr == "full":
            return Path("/dev/full").open("wb")
        if stderr == "dead":
            self._reader = reader = subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            assert reader.stdin is not None
            return reader.stdin
        return (self.folder / "master.log").open("ab")

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def stop(self) -> int:
        """End the master in order; return its exit code."""
        if self.is_alive:
            self.process.terminate()
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


async def answers(address: Address) -> bool:
    """Return whether the master at `address` answers an operator."""
    async with make_channel(address) as channel:
        with suppress(grpc.aio.AioRpcError):
            await OperatorServiceStub(channel).GetMaster(operator_pb2.GetMasterRequest(), timeout=5)
            return True
    return False


async def storm(master: Master, seed: int) -> tuple[int, list[str]]:
    """Run one storm; return the number of its messages, and answers that no input may cause."""
    attacks: list[Any] = []
    problems: list[str] = []
    for each in range(AT_ONCE):
        methods = [method for method in all_methods() if method.is_stream]
        method = methods[each % len(methods)]
        attacks.append(OutOfOrder(method, master.address, None, seed, f"/{each}"))
    for each, method in enumerate(each for each in all_methods() if not each.is_stream):
        attacks.append(make_attack(method, master.address, None, seed, f"/{each}"))

    async def work(attack: Any) -> None:
        for _ in range(STREAMS // AT_ONCE):
            try:
                await attack.next()
            except* Problem as found:
                problems.extend(map(str, found.exceptions))
        await attack.close()

    async with asyncio.TaskGroup() as group:
        for attack in attacks:
            group.create_task(work(attack))
    return sum(attack.sent for attack in attacks), problems


async def life(folder: Path, stderr: str, seed: int, until: float) -> dict[str, Any]:
    """Run storms against one master to its end; return what happened."""
    folder.mkdir(parents=True, exist_ok=True)
    master = Master(folder, stderr)
    sent = storms = 0
    problems: Counter[str] = Counter()
    try:
        with suppress(AssertionError, TimeoutError):
            await eventually(
                lambda: not master.is_alive or answers(master.address), START_S, "it answers"
            )
        master.end_reader()
        while master.is_alive and storms < STORMS_OF_LIFE and time.monotonic() < until:
            (folder / "seed").write_text(f"{seed + storms}\n")
            number, found = await storm(master, seed + storms)
            problems.update(found)
            sent, storms = sent + number, storms + 1
    finally:
        is_alive = master.is_alive
        is_answering = is_alive and await answers(master.address)
        code = master.stop()
    return {
        "seed": seed, "stderr": stderr, "storms": storms, "sent": sent, "ended": not is_alive,
        "answered": is_answering, "exit": code, "problems": dict(problems),
    }  # fmt: skip


async def lives(folder: Path, sinks: tuple[str, ...], seed: int, seconds: float) -> tuple[int, int]:
    """Run masters for some time; return their number, and how many did not end as they should."""
    until, number, ended = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        place = folder / f"life-{number}"
        line = await life(place, sinks[number % len(sinks)], seed + number * STORMS_OF_LIFE, until)
        number, ended = number + 1, ended + bool(line["ended"] or line["exit"])
        print(json.dumps({"folder": str(place), **line}), flush=True)
    return number, ended


def main() -> int:
    """Run storms for some time; print a line for each life of the master."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--stderr", choices=(*STDERR, "all"), default="file")
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a new one")
    given = parser.parse_args()
    seed = given.seed or time.time_ns() % 1_000_000
    folder = given.keep or Path(tempfile.mkdtemp(prefix="croupier-storm-"))
    sinks = STDERR if given.stderr == "all" else (given.stderr,)
    number, ended = asyncio.run(lives(folder, sinks, seed, given.minutes * 60))
    print(f"{number} lives of the master, {ended} ended by themselves or with an error")
    return 1 if ended else 0


if __name__ == "__main__":
    sys.exit(main())
