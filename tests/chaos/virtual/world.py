"""One world: masters, agents, frameworks, what goes wrong between them, and how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from croupier.agent.core import events as ev
from croupier.master.core.actions import AgentAction, Deactivate, Drain, MarkGone, Reactivate
from croupier.master.core.agents import Agent
from croupier.master.core.events import Event, OperateAgent, OperatorKill, UpdateRoles
from croupier.master.core.messages import (
    AcknowledgeUpdate,
    KillTask,
    LaunchTask,
    Registered,
    ResendUpdates,
    Subscribed,
    Updated,
    Verdict,
)
from croupier.master.core.roles import RoleChange
from croupier.master.core.settings import Settings
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from tests.chaos.virtual import registry as reg
from tests.chaos.virtual.agent import AgentProcess
from tests.chaos.virtual.faults import Fault, drawn
from tests.chaos.virtual.framework import FrameworkProcess, Habits
from tests.chaos.virtual.judge import Judge, Violation
from tests.chaos.virtual.kernel import Kernel
from tests.chaos.virtual.machine import Machine
from tests.chaos.virtual.master import MasterProcess, Term
from tests.chaos.virtual.network import End, Network
from tests.chaos.virtual.process import Process

LEASE_S = 3.0
MOST_FRAMEWORKS = 6
# How long a leader stands still so that another leads, has tasks end, and is left again.
USURPED_S = 6.0
MESSAGES = (
    Registered,
    LaunchTask,
    KillTask,
    AcknowledgeUpdate,
    ResendUpdates,
    Subscribed,
    Verdict,
    Updated,
)
# After everything is healed, all must be over within this time.
SETTLE_S = 900.0
TOTALS = ("cpus:2;mem:600;ports:[1-4]", "cpus:4;mem:1000;ports:[1-2]", "cpus:8;mem:4000")
ROLES = ("a", "a/x", "b")


class World:
    """Everything that follows from one seed.

    Attributes:
        faults: what goes wrong; all that the seed says, unless fewer were asked for.
        struck: how many faults of each kind did strike somebody.
    """

    def __init__(
        self,
        seed: int,
        faults: Sequence[Fault] | None = None,
        traced: bool = False,
        only: tuple[str, ...] = (),
    ) -> None:
        """`faults` in place of those that the seed says, or such as are of some kinds `only`."""
        self.seed = seed
        random = Random(f"{seed} world")
        self.until = random.choice((10.0, 20.0, 40.0))
        drawn_faults = drawn(Random(f"{seed} faults"), self.until, only)
        self.faults = list(drawn_faults if faults is None else faults)
        self.struck: Counter[str] = Counter()
        self.kernel = Kernel(traced)
        self.network = Network(self.kernel, Random(f"{seed} network"))
        self.judge = Judge(self.kernel)
        self.is_healed = False
        masters = random.choice((1, 2, 3))
        ttl_s = LEASE_S if masters > 1 else 0.0
        self.registry = reg.SharedRegistry(self.kernel, self.network, ttl_s, self.judge.on_commit)
        self.judge.registry = lambda: self.registry.durable
        self.judge.leads = self._leads
        names = tuple(f"master-{n}" for n in range(1, masters + 1))
        self.settings = _settings(random)
        common = (self.kernel, self.network, str(seed))
        self.masters = [
            MasterProcess(name, *common, self.settings, ttl_s, self.judge) for name in names
        ]
        self.machines = [
            Machine(f"agent-{n}", self.kernel, Resources.parse(random.choice(TOTALS)), self.judge)
            for n in range(1, random.choice((1, 2, 2, 3)) + 1)
        ]
        self.agents = [
            AgentProcess(machine.name, *common, names, machine, self.judge)
            for machine in self.machines
        ]
        self.frameworks = [
            FrameworkProcess(
                f"framework-{n}", *common, self.settings, names, _habits(random), self.judge
            )
            for n in range(1, random.choice((1, 2, 2, 3)) + 1)
        ]

    @property
    def processes(self) -> list[Process]:
        """Everybody."""
        return [*self.masters, *self.agents, *self.frameworks]

    @property
    def steps(self) -> int:
        """How often a core was stepped."""
        return sum(each.steps for each in self.masters) + sum(each.steps for each in self.agents)

    def run(self) -> None:
        """Live from the beginning to the end.

        Raises:
            AssertionError: if something was that must never be.
        """
        for process in self.processes:
            process.start()
        for fault in self.faults:
            self.kernel.at(fault.at, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        self.kernel.run(self.until)
        self._heal()
        self._settle()

    def _leads(self, term: Term) -> bool:
        return term.revision == self.registry.revision

    # Faults.

    def _strike(self, fault: Fault) -> None:
        self.kernel.trace(f"fault: {fault}")
        strike: Callable[[Fault], bool] = getattr(self, f"_on_{fault.kind}")
        if strike(fault):
            self.struck[fault.kind] += 1

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something done, unless everything is healed by then."""
        self.kernel.after(seconds, lambda: None if self.is_healed else action())

    def _crash(self, process: Process, fault: Fault) -> bool:
        if not process.is_up:
            return False
        process.crash(bool(fault.salt & 1))
        self._later(fault.lasts, process.start)
        return True

    def _pause(self, process: Process, fault: Fault) -> bool:
        if not process.is_up or process.paused:
            return False
        process.pause()
        self._later(fault.lasts, process.resume)
        return True

    def _on_master_crash(self, fault: Fault) -> bool:
        master = self._master(fault)
        struck = self._crash(master, fault)
        self.registry.crashed(master.name)
        return struck

    def _kill_leader(self, fault: Fault) -> None:
        self._on_master_crash(replace(fault, who=1))

    def _master(self, fault: Fault) -> MasterProcess:
        """The leader more often than others."""
        leader = [each for each in self.masters if each.name == reg.name_of(self.registry.leader)]
        if leader and fault.who % 3:
            return leader[0]
        return self.masters[fault.who % len(self.masters)]

    def _on_master_pause(self, fault: Fault) -> bool:
        return self._pause(self._master(fault), fault)

    def _on_agent_crash(self, fault: Fault) -> bool:
        return self._crash(self.agents[fault.who % len(self.agents)], fault)

    def _on_agent_pause(self, fault: Fault) -> bool:
        return self._pause(self.agents[fault.who % len(self.agents)], fault)

    def _on_framework_crash(self, fault: Fault) -> bool:
        return self._crash(self.frameworks[fault.who % len(self.frameworks)], fault)

    def _on_framework_pause(self, fault: Fault) -> bool:
        return self._pause(self.frameworks[fault.who % len(self.frameworks)], fault)

    def _on_twin(self, fault: Fault) -> bool:
        """A newer run of a program is begun while the older one runs, or stands still."""
        older = self.frameworks[fault.who % len(self.frameworks)]
        if not older.framework_id or older.is_retired or len(self.frameworks) > MOST_FRAMEWORKS:
            return False
        if fault.salt & 1:
            self._pause(older, fault)
        twin = FrameworkProcess(
            f"{older.name}t",
            self.kernel,
            self.network,
            str(self.seed),
            self.settings,
            older.masters,
            older.habits,
            self.judge,
        )
        if twin.name in {each.name for each in self.frameworks}:
            return False
        twin.take_over(older)
        self.frameworks.append(twin)
        twin.start()
        return True

    def _on_framework_deaf(self, fault: Fault) -> bool:
        framework = self.frameworks[fault.who % len(self.frameworks)]
        framework.deaf_until = self.kernel.now + fault.lasts
        return True

    def _on_shim_kill(self, fault: Fault) -> bool:
        machine = self.machines[fault.who % len(self.machines)]
        live = machine.live
        if live:
            machine.kill_shim(live[fault.other % len(live)])
        return bool(live)

    def _on_reboot(self, fault: Fault) -> bool:
        agent = self.agents[fault.who % len(self.agents)]
        agent.crash(loses=True)
        agent.machine.reboot()
        self._later(fault.lasts, agent.start)
        return True

    def _on_damage(self, fault: Fault) -> bool:
        """Some of an agent's records are lost, and it is to make the best of the rest."""
        agent = self.agents[fault.who % len(self.agents)]
        agent.damage = 1 + fault.salt % 3
        self.judge.damaged.add(agent.name)
        return self._crash(agent, fault)

    def _on_cut(self, fault: Fault) -> bool:
        one, two = self._pair(fault)
        self._cut(one, two, fault.lasts)
        self._cut(two, one, fault.lasts)
        return True

    def _on_cut_one_way(self, fault: Fault) -> bool:
        one, two = self._pair(fault)
        if fault.salt & 1:
            one, two = two, one
        self._cut(one, two, fault.lasts)
        return True

    def _on_cut_registry(self, fault: Fault) -> bool:
        if len(self.masters) == 1:
            return False
        name = self._master(fault).name
        if fault.salt % 3 != 0:
            self._cut(name, reg.NAME, fault.lasts)
        if fault.salt % 3 != 1:
            self._cut(reg.NAME, name, fault.lasts)
        return True

    def _pair(self, fault: Fault) -> tuple[str, str]:
        """A master and one of the others."""
        others = [each.name for each in (*self.agents, *self.frameworks)]
        return self._master(fault).name, others[fault.other % len(others)]

    def _cut(self, source: str, target: str, lasts: float) -> None:
        self.network.cut(source, target)
        self._later(lasts, lambda: self.network.heal(source, target))

    def _on_slow(self, fault: Fault) -> bool:
        process = self.processes[fault.who % len(self.processes)]
        self.network.slow(process.name, float(2 + fault.salt % 100))
        self._later(fault.lasts, lambda: self.network.slow(process.name, 1.0))
        return True

    def _on_slow_registry(self, fault: Fault) -> bool:
        self.registry.slow_s = (fault.salt % 50) / 10

        def heal() -> None:
            self.registry.slow_s = 0.0

        self._later(fault.lasts, heal)
        return True

    def _on_reset(self, fault: Fault) -> bool:
        return self._break(fault, (True, True))

    def _on_half_reset(self, fault: Fault) -> bool:
        return self._break(fault, (True, False) if fault.salt & 1 else (False, True))

    def _break(self, fault: Fault, told: tuple[bool, bool]) -> bool:
        process = self.processes[fault.who % len(self.processes)]
        streams = self.network.streams_of(process.name)
        if not streams:
            return False
        end = streams[fault.other % len(streams)]
        if reg.NAME in (end.name, end.peer_name):
            told = (True, True)
        self.network.reset(end, bool(fault.salt & 2), told)
        return True

    def _on_hang(self, fault: Fault) -> bool:
        process = self.processes[fault.who % len(self.processes)]
        streams = [
            end
            for end in self.network.streams_of(process.name)
            if reg.NAME not in (end.name, end.peer_name)
        ]
        if streams:
            self.network.hang(streams[fault.other % len(streams)])
        return bool(streams)

    # Faults that wait for the worst moment.

    def _on_snap(self, fault: Fault) -> bool:
        """A stream breaks with the next message of a kind still in it."""

        def snap(_: str, end: End | None) -> None:
            if end is not None and not self.is_healed:
                self.network.reset(end, loses=True, told=(True, True))

        kind = MESSAGES[fault.salt % len(MESSAGES)]
        self.judge.await_moment(kind.__name__, snap)
        return True

    def _on_worst_moment(self, fault: Fault) -> bool:
        """A process is killed between two things that belong together."""
        kinds = ("commit", "sync", "process", "end", *(kind.__name__ for kind in MESSAGES))
        named = {process.name: process for process in self.processes}

        def kill(name: str, _: End | None) -> None:
            process = named.get(name or reg.name_of(self.registry.leader))
            if process is not None and not self.is_healed and self._crash(process, fault):
                self.registry.crashed(process.name)

        self.judge.await_moment(kinds[fault.salt % len(kinds)], kill)
        return True

    def _on_lost_kill(self, fault: Fault) -> bool:
        """A task is to end while its agent is cut off, and then the master dies."""
        live = [run for machine in self.machines for run in machine.live]
        fates = [self.judge.fates[run.key[1]] for run in live]
        known = [n for n, fate in enumerate(fates) if fate.owner.is_subscribed and fate.machine]
        if not known:
            return False
        chosen = known[fault.other % len(known)]
        machine = fates[chosen].machine
        assert machine is not None
        for master in self.masters:
            self._cut(master.name, machine.name, 1.5)
        fates[chosen].owner.kill(live[chosen].key[1])
        self._later(1.0, lambda: self._kill_leader(fault))
        return True

    def _on_usurp(self, fault: Fault) -> bool:
        """The leader stands still until another leads, and comes to just as agents look around."""
        if len(self.masters) == 1:
            return False

        def pause(name: str, _: End | None) -> None:
            master = {each.name: each for each in self.masters}[name]
            if self.is_healed or not self._pause(master, replace(fault, lasts=USURPED_S)):
                return
            for process in (*self.agents, *self.frameworks):
                self._later(LEASE_S + 1.0, lambda name=process.name: self._reset_all(name))  # type: ignore[misc]
            self._later(USURPED_S - 0.2, lambda: self._turn_to(name))

        self.judge.await_moment(LaunchTask.__name__, pause)
        return True

    def _turn_to(self, master: str) -> None:
        """Have all agents look around, and find this master first."""
        for agent in self.agents:
            agent.next_master = master
            self._reset_all(agent.name)

    def _reset_all(self, name: str) -> None:
        for end in self.network.streams_of(name):
            self.network.reset(end, loses=True, told=(True, True))

    # Faults of agents' machines.

    def _on_disk_full(self, fault: Fault) -> bool:
        agent = self.agents[fault.who % len(self.agents)]
        if agent.is_up:
            agent.put(ev.RoomChanged(False))
            agent.later(fault.lasts, lambda: agent.put(ev.RoomChanged(True)))
        return agent.is_up

    def _on_slow_disk(self, fault: Fault) -> bool:
        agent = self.agents[fault.who % len(self.agents)]
        agent.slow_s = (fault.salt % 20) / 10

        def heal() -> None:
            agent.slow_s = 0.0

        self._later(fault.lasts, heal)
        return True

    def _on_no_spawn(self, fault: Fault) -> bool:
        agent = self.agents[fault.who % len(self.agents)]
        agent.cannot_spawn = True

        def heal() -> None:
            agent.cannot_spawn = False

        self._later(fault.lasts, heal)
        return True

    def _on_stop(self, fault: Fault) -> bool:
        agent = self.agents[fault.who % len(self.agents)]
        if agent.is_up:
            agent.stop()
            self._later(fault.lasts + 5.0, agent.start)
        return agent.is_up

    def _on_teardown(self, fault: Fault) -> bool:
        framework = self.frameworks[fault.who % len(self.frameworks)]
        if framework.is_up and framework.framework_id:
            framework.tear_down()
        return framework.is_up

    # Operators.

    def _ask(self, make_event: Callable[[int], Event], answered: Callable[[object], None]) -> bool:
        """Ask the master that leads; nobody asks again if there is no answer."""
        leaders = [each for each in self.masters if each.term is not None and each.is_up]
        if leaders:
            leaders[0].ask(make_event, answered)
        return bool(leaders)

    def _operate(self, name: str, action: AgentAction) -> bool:
        def answered(result: object) -> None:
            if isinstance(result, Agent):
                self.judge.on_operated(name, action, result)

        return self._ask(lambda request: OperateAgent(request, name, action, "chaos"), answered)

    def _named(self, fault: Fault) -> str:
        return self.agents[fault.who % len(self.agents)].name

    def _on_drain(self, fault: Fault) -> bool:
        return self._operate(self._named(fault), Drain((None, 0, 1000)[fault.salt % 3]))

    def _on_deactivate(self, fault: Fault) -> bool:
        return self._operate(self._named(fault), Deactivate())

    def _on_reactivate(self, fault: Fault) -> bool:
        return self._operate(self._named(fault), Reactivate())

    def _on_gone(self, fault: Fault) -> bool:
        # What is answered is known late: from here on the agent may be gone.
        self.judge.gone.add(self._named(fault))
        return self._operate(self._named(fault), MarkGone())

    def _on_operator_kill(self, fault: Fault) -> bool:
        live = [run for machine in self.machines for run in machine.live]
        if not live:
            return False
        framework_id, task_id = live[fault.other % len(live)].key
        self.judge.fates[task_id].killers.add("operator")
        return self._ask(
            lambda request: OperatorKill(request, task_id, framework_id, None), lambda _: None
        )

    def _on_weight(self, fault: Fault) -> bool:
        change = RoleChange(
            Role(ROLES[fault.who % len(ROLES)]), RoleSettings(1 + fault.salt % 5000)
        )
        return self._ask(lambda request: UpdateRoles(request, (change,)), lambda _: None)

    # The end.

    def _heal(self) -> None:
        """Undo every fault, and have frameworks come to their end."""
        self.kernel.trace("everything is healed")
        self.is_healed = True
        self.judge.moments.clear()
        self.registry.slow_s = 0.0
        for agent in self.agents:
            agent.slow_s, agent.cannot_spawn = 0.0, False
        self.network.heal_all()
        for process in self.processes:
            process.resume()
            process.start()
        for framework in self.frameworks:
            framework.settle()

    def _settle(self) -> None:
        """Let time pass until all is quiet.

        Raises:
            Violation: if it never is.
        """
        limit = self.kernel.now + SETTLE_S
        while True:
            self.kernel.run(self.kernel.now + 1.0)
            left = self._unsettled()
            if not left:
                self._ask_all()
                return
            if self.kernel.now > limit:
                raise Violation("never quiet: " + "; ".join(left[:12]))
            for process in self.processes:
                # An agent that was stopping leaves late.
                process.start()
            for framework in self.frameworks:
                framework.end_endless()
            self._reactivate()

    def _ask_all(self) -> None:
        """Have every framework ask for each of its tasks: each is answered.

        Raises:
            Violation: if one is not.
        """
        self.judge.answered.clear()
        asked = [task for framework in self.frameworks for task in framework.ask_all()]
        self.kernel.run(self.kernel.now + 2.0)
        silent = [task_id for task_id in asked if task_id not in self.judge.answered]
        if silent:
            raise Violation(f"RECONCILE is not answered for {silent}")

    def _reactivate(self) -> None:
        """Have all agents offered again that operators took away."""
        for record in self.registry.durable.agents.values():
            if not record.gone and (record.deactivated or record.drain is not None):
                self._operate(record.agent_id, Reactivate())
            if not record.gone and record.hostname in self.judge.damaged:
                # It may have lost its name, too.
                names = {agent.state.agent_id for agent in self.agents}
                if record.agent_id not in names:
                    self._operate(record.agent_id, MarkGone())

    def _unsettled(self) -> list[str]:
        """What is not as it must be in the end, for people."""
        left = self.judge.unfinished()
        for framework in self.frameworks:
            if not framework.is_settled:
                left.append(f"{framework.name} waits: {framework.is_waiting_for}")
        terms = [each.term for each in self.masters if each.term and self._leads(each.term)]
        if not terms:
            left.append("nobody leads")
        for term in terms:
            state = term.state
            left += [
                f"the master has task {task.task_id} {task.state.name}"
                for each in state.frameworks.values()
                for task in each.tasks.values()
            ]
            for known in state.agents.values():
                if not known.in_pool or state.allocator.free(known.agent_id) != known.total:
                    left.append(f"not all of {known.agent_id} is free")
        for agent in self.agents:
            left += [f"{agent.name} has task {key}" for key in agent.state.tasks]
            if agent.state.free != agent.state.total:
                left.append(f"not all of {agent.name} is free")
        left += [f"the registry has task {key}" for key in self.registry.durable.tasks]
        return left


def _settings(random: Random) -> Settings:
    """Short times, and now and then narrow bounds."""
    return Settings(
        heartbeat_s=3.0,
        agent_timeout_s=12.0,
        return_timeout_s=random.choice((8.0, 25.0)),
        offer_lease_s=4.0,
        resend_s=5.0,
        removals=random.choice((1, 100)),
        removal_window_s=10.0,
        completed_tasks=random.choice((2, 10_000)),
        spent_ids=random.choice((2, 100_000)),
        spent_frameworks=random.choice((20, 10_000)),
        unacknowledged=random.choice((2, 10_000)),
    )


def _habits(random: Random) -> Habits:
    return Habits(
        role=Role(random.choice(ROLES)),
        tasks=random.choice((2, 5, 10, 20)),
        endless=random.choice((0.0, 0.2)),
        stubborn=random.choice((0.0, 0.3)),
        kills=random.choice((0.0, 0.3)),
        reconciles_s=random.choice((0.0, 3.0, 10.0)),
        fails=random.choice((0.0, 0.1)),
        failover_timeout_s=random.choice((600.0, 600.0, 600.0, 5.0)),
    )
