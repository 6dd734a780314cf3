"""A run of the fuzzer: honest peers first alone, then beside all attacks, then the verdict."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from croupier.net.address import Address
from croupier.net.transport import make_channel
from croupier.v1 import operator_pb2, resources_pb2
from croupier.v1.agent_pb2 import AgentServiceConnectResponse
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.fuzz import honest, judge
from tests.fuzz.attack import Attack, Problem
from tests.fuzz.cases import SUFFIX, corpus
from tests.fuzz.contract import all_methods
from tests.fuzz.daemons import Daemon, Honest, start_agent, start_master
from tests.fuzz.false_master import FalseMaster
from tests.fuzz.grpc_attacks import StreamAttack, make_attack, make_floods
from tests.fuzz.http_attack import HttpAttack
from tests.fuzz.judge import Finding
from tests.fuzz.mesos_attack import MesosAttack
from tests.fuzz.parties import ADMIN, Attackers, admit, attackers, file_of
from tests.fuzz.state_lines import StateAttack
from tests.harness.eventually import eventually

START_S: Final = 20.0
MEASURE_S: Final = 0.5
# Part of the time for the honest peers alone.
ALONE: Final = 0.15
# How long a run may take until each attack has sent something.
MOST_S: Final = 60.0
# Messages a second, on average, and cases at once.
RATE: Final = 2_500.0
AT_ONCE: Final = 24
# Turns of streams for each turn of another attack.
STREAM_TURNS: Final = 1
# Findings after which a run ends.
MOST_FINDINGS: Final = 20


@dataclass(slots=True)
class Report:
    """The result of a run."""

    findings: list[Finding] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    answers: dict[str, Counter[str]] = field(default_factory=dict)
    alone: dict[str, list[float]] = field(default_factory=dict)
    beside: dict[str, list[float]] = field(default_factory=dict)
    rss_mib: dict[str, int] = field(default_factory=dict)
    tasks: int = 0
    seconds: float = 0.0

    @property
    def kinds(self) -> set[str]:
        """The kinds of findings."""
        return {finding.kind for finding in self.findings}


class Campaign:
    """One run in a folder, which keeps all logs and the cases of findings."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        seconds: float,
        rate: float = RATE,
        longest_step_s: float = judge.MOST_STEP_S,
        *,
        has_auth: bool = True,
        only: str = "",
    ) -> None:
        """Attack for about `seconds`, with `rate` messages a second.

        With `has_auth` the master authenticates, and attackers have several credentials. Attacks
        whose name does not contain `only` are left out.
        """
        self._has_auth, self._only = has_auth, only
        self._folder, self._seed, self._seconds = folder, seed, seconds
        self._rate, self._longest_step_s = rate, longest_step_s
        self._daemons: list[Daemon] = []
        self._attacks: list[Attack] = []
        self._order = random.Random(seed)
        self.report = Report()

    async def run(self, *, judges_latency: bool = True) -> Report:
        """Start everything, attack, and judge."""
        began = time.monotonic()
        flags = ["--auth", "--admin-token-file", str(file_of(self._folder, ADMIN))]
        master, listen = start_master(self._folder, *(flags if self._has_auth else []))
        self._daemons.append(master)
        peers = None
        try:
            await self._until_answered(listen)
            if self._has_auth:
                await admit(listen, self._folder)
            await self._guarantee(listen)
            peers = Honest(listen, self._folder, has_auth=self._has_auth)
            await asyncio.to_thread(peers.phase)
            await self._busy(max(self._seconds * ALONE, 1.0))
            self.report.alone = await asyncio.to_thread(peers.phase)
            await self._make_attacks(listen)
            await self._replay_corpus()
            await self._attack()
            self.report.beside = await asyncio.to_thread(peers.phase)
        finally:
            self._judge()
            if peers is not None:
                end = await asyncio.to_thread(peers.end)
                self.report.tasks = end["tasks"]
                self.report.findings += judge.of_honest(end)
            if judges_latency:
                self.report.findings += judge.of_latencies(self.report.alone, self.report.beside)
            for daemon in reversed(self._daemons):
                code = await asyncio.to_thread(daemon.stop)
                if code:
                    self._found(Finding("end", f"the {daemon.name} ended with exit code {code}"))
            for attack in self._attacks:
                await attack.close()
            self._save_cases()
            self.report.seconds = time.monotonic() - began
        return self.report

    async def _guarantee(self, master: Address) -> None:
        """Let the honest role be served before all attackers."""
        guarantee = [
            resources_pb2.NamedScalar(name="cpus", milli=honest.RESOURCES.cpus_milli),
            resources_pb2.NamedScalar(name="mem", milli=honest.RESOURCES.mem_milli),
        ]
        change = operator_pb2.RoleChange(
            role=honest.ROLE, settings=operator_pb2.RoleSettings(guarantee=guarantee)
        )
        admin = attackers(self._folder)[f" as {ADMIN}"] if self._has_auth else None
        async with make_channel(master, admin) as channel:
            await OperatorServiceStub(channel).UpdateRoles(
                operator_pb2.UpdateRolesRequest(changes=[change], force=True), timeout=10
            )

    async def _make_attacks(self, master: Address) -> None:
        seed = self._seed
        parties: Attackers = attackers(self._folder) if self._has_auth else {"": None}
        for method in all_methods():
            for name, security in parties.items():
                self._attacks.append(make_attack(method, master, security, seed, name))
        self._attacks += make_floods(master, parties, seed)
        for method in all_methods():
            if method.response is AgentServiceConnectResponse.DESCRIPTOR:
                false_master = FalseMaster(method, seed)
                await false_master.start()
                self._attacks.append(false_master)
                self._daemons.append(start_agent(self._folder, false_master.address))
        for daemon in self._daemons:
            await eventually(lambda daemon=daemon: daemon.routes, START_S, "it serves HTTP")  # type: ignore[misc]
            assert daemon.routes is not None
            port, routes = daemon.routes
            address = Address("127.0.0.1", port)
            self._attacks.append(HttpAttack(daemon.name, address, routes, seed))
        await self._attack_gateway(parties)
        self._attacks.append(StateAttack(seed))
        for attack in [each for each in self._attacks if self._only not in each.name]:
            self._attacks.remove(attack)
            await attack.close()
        assert self._attacks, f"no attack has {self._only!r} in its name"

    async def _attack_gateway(self, parties: Attackers) -> None:
        """Add the attacks on the master's gateway for frameworks of Mesos."""
        master = self._daemons[0]
        await eventually(lambda: master.gateway, START_S, "it serves frameworks of Mesos")
        assert master.gateway is not None
        port, routes = master.gateway
        address = Address("127.0.0.1", port)
        self._attacks.append(HttpAttack("gateway", address, routes, self._seed))
        for name, security in parties.items():
            token = "" if security is None else security.token
            self._attacks.append(MesosAttack(address, self._seed, token, name))

    async def _until_answered(self, master: Address) -> None:
        async with make_channel(master) as channel:
            stub = OperatorServiceStub(channel)

            async def answers() -> bool:
                assert self._daemons[0].is_alive, self._daemons[0].log.read_text()
                try:
                    await stub.GetMaster(operator_pb2.GetMasterRequest(), timeout=1)
                except grpc.aio.AioRpcError as error:
                    return error.code() is grpc.StatusCode.UNAUTHENTICATED
                return True

            await eventually(answers, START_S, "the master answers")

    async def _busy(self, seconds: float) -> None:
        """Use the processor as attacks do, and send nothing.

        So the latencies of honest peers differ by what the daemons do, not by the machine's load.
        """
        until, attack = time.monotonic() + seconds, StateAttack(self._seed)
        while time.monotonic() < until:
            await self._guarded(attack, attack.next(), "a case")
            await asyncio.sleep(0)

    async def _replay_corpus(self) -> None:
        for name, case in corpus():
            for attack in self._attacks:
                if attack.accepts(case.target):
                    await self._guarded(attack, attack.replay(case), f"the corpus' {name}")

    async def _attack(self) -> None:
        """Run cases of all attacks in turn, a few at once, at the given rate."""
        began = time.monotonic()
        # An attack on a client waits until it connects, so it has a task of its own.
        alone = [each for each in self._attacks if isinstance(each, FalseMaster)]
        waiting = [each for each in self._attacks if each not in alone]
        # Streams have most turns: one of their cases has hundreds of messages.
        streams = [each for each in waiting if isinstance(each, StreamAttack)]
        for _ in range(len(waiting) * STREAM_TURNS // len(streams) if streams else 0):
            waiting.insert(self._order.randrange(len(waiting)), self._order.choice(streams))

        async def work(waiting: list[Attack]) -> None:
            while self._goes_on(began):
                attack = waiting.pop(0)
                await self._guarded(attack, attack.next(), "a case")
                waiting.append(attack)
                ahead_s = self.report.sent.total() / self._rate - (time.monotonic() - began)
                await asyncio.sleep(max(0.0, ahead_s))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(waiting))):
                group.create_task(work(waiting))
            for attack in alone:
                group.create_task(work([attack]))
            group.create_task(self._measure(began))

    def _goes_on(self, began: float) -> bool:
        lasted_s = time.monotonic() - began
        # On a busy machine the time may end before each attack has had its turn.
        is_whole = all(self.report.sent[attack.name] for attack in self._attacks)
        return (
            (lasted_s < self._seconds * (1 - ALONE) or (not is_whole and lasted_s < MOST_S))
            and len(self.report.findings) < MOST_FINDINGS
            and all(daemon.is_alive for daemon in self._daemons)
        )

    async def _guarded(self, attack: Attack, running: object, what: str) -> None:
        try:
            await running  # type: ignore[misc]
        except* Problem as problems:
            for problem in problems.exceptions:
                self._found(Finding("answer", f"{what} of {attack.name}: {problem}"))
        self.report.sent[attack.name] = attack.sent
        self.report.answers[attack.name] = attack.answers

    async def _measure(self, began: float) -> None:
        while self._goes_on(began):
            for daemon in self._daemons:
                daemon.measure()
                self.report.rss_mib[daemon.name] = daemon.peak_kib // 1024
            await asyncio.sleep(MEASURE_S)

    def _found(self, finding: Finding) -> None:
        if finding not in self.report.findings:
            self.report.findings.append(finding)

    def _judge(self) -> None:
        for daemon in self._daemons:
            for finding in judge.of_daemon(daemon, self._longest_step_s):
                self._found(finding)

    def _save_cases(self) -> None:
        """Keep the latest cases of each attack beside the findings."""
        if not self.report.findings:
            return
        text = [str(finding) for finding in self.report.findings]
        (self._folder / "findings.json").write_text(json.dumps(text, indent=1))
        for attack in self._attacks:
            for number, case in enumerate(attack.recent):
                name = attack.name.strip("/").replace("/", "-")
                case.save(self._folder / f"{name}-{number}{SUFFIX}")
