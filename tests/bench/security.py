"""Cost of security: a master with mutual TLS, tokens and rules beside one without, in one run.

    python -m tests.bench.security [ROUNDS]

Both masters run at once, and rounds of a few seconds alternate between them, so that the load of
the machine hits both. One agent and one framework are connected, over streams. `rate` is tasks a
second, 200 to an ACCEPT; `us a task` is the processor time of the master meanwhile; `cycle` is the
time from an ACCEPT of one task to the next offer of its resources; `ask` is a unary call.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_channel
from croupier.v1.agent_pb2_grpc import AgentServiceStub
from croupier.v1.framework_pb2_grpc import FrameworkServiceStub
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.fuzz.daemons import Daemon, start_master
from tests.fuzz.honest import HonestAgent, HonestFramework, Results, ask
from tests.fuzz.parties import ADMIN, HONEST_AGENT, admit, file_of, security_of
from tests.harness.certificates import authority
from tests.harness.eventually import eventually

ROUNDS = 8
ROUND_S = 2.0
TASKS = 200
START_S = 30.0


@dataclass(slots=True)
class Side:
    """A master, the credentials of its peers, and what they measured.

    Attributes:
        securities: of the agent, the framework and the operator.
    """

    master: Daemon
    listen: Address
    securities: tuple[ClientSecurity | None, ...]
    agent_id: str
    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    latencies: dict[str, list[float]] = field(default_factory=dict)

    @asynccontextmanager
    async def peers(self, tasks: int, results: Results) -> AsyncIterator[HonestFramework]:
        """Connect an agent, a framework and an operator."""
        channels = [make_channel(self.listen, security) for security in self.securities]
        agent = HonestAgent(AgentServiceStub(channels[0]), self.agent_id)
        framework = HonestFramework(FrameworkServiceStub(channels[1]), results, tasks, 0.0)
        working = [asyncio.create_task(each.run()) for each in (agent, framework)]
        working.append(asyncio.create_task(ask(OperatorServiceStub(channels[2]), results)))
        try:
            await eventually(lambda: framework.finished, START_S, "a task has finished")
            yield framework
        finally:
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            for channel in channels:
                await channel.close()

    async def measure(self) -> None:
        """Run one round of each kind."""
        results = Results()
        async with self.peers(TASKS, results) as framework:
            done, began, cpu_s = len(framework.finished), time.monotonic(), self.master.cpu_s
            await asyncio.sleep(ROUND_S)
            tasks = len(framework.finished) - done
            self.rates.append(tasks / (time.monotonic() - began))
            self.costs.append((self.master.cpu_s - cpu_s) / tasks * 1e6)
        assert not results.lost, results.lost
        results = Results()
        async with self.peers(1, results):
            results.begin()
            await asyncio.sleep(ROUND_S)
        assert not results.lost, results.lost
        for name in ("cycle", "ask"):
            self.latencies.setdefault(name, []).extend(results.latencies[name])


async def off(folder: Path) -> Side:
    """Start a master without security."""
    folder.mkdir()
    master, listen = start_master(folder)
    return Side(master, listen, (None, None, None), "")


async def on(folder: Path) -> Side:
    """Start a master with mutual TLS, tokens and rules."""
    folder.mkdir()
    own = authority().issue(folder / "master", "master/m1")
    client = authority().issue(folder / "client", "client/bench")
    master, listen = start_master(
        folder, "--tls-ca", str(own.ca), "--tls-cert", str(own.cert), "--tls-key", str(own.key),
        "--auth", "--admin-token-file", str(file_of(folder, ADMIN)),
    )  # fmt: skip
    await eventually(lambda: master.routes, START_S, "the master serves")
    tls = ClientSecurity(ca=client.ca, cert=client.cert, key=client.key)
    await admit(listen, folder, tls)
    parties = (HONEST_AGENT, "honest", ADMIN)
    securities = tuple(security_of(folder, party, tls) for party in parties)
    return Side(master, listen, securities, HONEST_AGENT)


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


def row(name: str, without: float, with_it: float, unit: str) -> str:
    """Return a line; a rate is compared by its ratio, a latency by its difference too."""
    difference = f"{with_it - without:+8.2f} {unit}" if unit == "ms" else ""
    return f"{name:<12} {without:>10.2f} {with_it:>10.2f} {with_it / without:>8.3f} {difference}"


async def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as work_dir:
        sides = [await off(Path(work_dir) / "off"), await on(Path(work_dir) / "on")]
        without, secured = sides
        try:
            for number in range(rounds):
                for side in sides if number % 2 else reversed(sides):
                    await side.measure()
        finally:
            for side in sides:
                side.master.stop()
    print(f"{'':<12} {'off':>10} {'on':>10} {'on/off':>8}")
    print(row("rate", median(without.rates), median(secured.rates), "tasks/s"))
    print(row("us a task", median(without.costs), median(secured.costs), "us"))
    for name in without.latencies:
        for label, part in (("p50", 0.5), ("p99", 0.99)):
            off_ms, on_ms = (percentile(side.latencies[name], part) for side in sides)
            print(row(f"{name} {label}", off_ms, on_ms, "ms"))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
