"""One world: masters, agents, frameworks, and the faults between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from croupier.master.core.agent_commands import AgentAction, MarkGone, OperateAgent, Reactivate
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.hold_commands import ReleaseHold
from croupier.master.core.on_hold import holds_and_orphans
from croupier.master.core.reservation_commands import DeleteReservation
from croupier.master.core.step import Event
from croupier.model.resources import Resources
from tests.chaos.virtual import registry as reg
from tests.chaos.virtual import variety
from tests.chaos.virtual.agent import AgentProcess
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.faults import Fault, drawn
from tests.chaos.virtual.framework import FrameworkProcess
from tests.chaos.virtual.injectors import INJECTORS
from tests.chaos.virtual.judge import Judge
from tests.chaos.virtual.machine import Key, Machine
from tests.chaos.virtual.master import MasterProcess
from tests.chaos.virtual.network import Network
from tests.chaos.virtual.preemption import PreemptTask
from tests.chaos.virtual.process import Process
from tests.chaos.virtual.task_history import Violation, must
from tests.chaos.virtual.term import Term

# After all faults are healed, everything must end within this time.
SETTLE_S = 900.0
# After this time an operator kills the tasks that no framework knows.
FORGOTTEN_S = 100.0


class World:
    """Everything that follows from one seed.

    Attributes:
        faults: the faults of the seed, unless others were given.
        injected: the number of effective faults by kind.
        newest: the store that an operator restores once a master refuses an older copy; None if
            masters accept the older copy.
    """

    def __init__(
        self,
        seed: int,
        faults: Sequence[Fault] | None = None,
        traced: bool = False,
        only: tuple[str, ...] = (),
    ) -> None:
        """Build the world of a seed, with `faults` instead of its own, or with the kinds `only`."""
        self.seed = seed
        random = Random(f"{seed} world")
        self.until = random.choice((10.0, 20.0, 40.0))
        drawn_faults = drawn(Random(f"{seed} faults"), self.until, only)
        self.faults = list(drawn_faults if faults is None else faults)
        self.injected: Counter[str] = Counter()
        self.clock = TracedClock(traced)
        self.network = Network(self.clock, Random(f"{seed} network"))
        self.judge = Judge(self.clock)
        self.is_healed = False
        self.newest: reg.Copy | None = None
        self.judge.refused = self._resolve_later
        masters = random.choice((1, 2, 3))
        ttl_s = variety.LEASE_S if masters > 1 else 0.0
        self.registry = reg.SharedRegistry(self.clock, self.network, ttl_s, self.judge.on_commit)
        self.judge.registry = lambda: self.registry.durable
        self.judge.leads = self._leads
        names = tuple(f"master-{n}" for n in range(1, masters + 1))
        self.settings = variety.settings(random)
        common = (self.clock, self.network, str(seed))
        self.masters = [
            MasterProcess(name, *common, self.settings, ttl_s, self.judge) for name in names
        ]
        self.machines = [
            self._machine(f"agent-{n}", variety.total(random))
            for n in range(1, random.choice((1, 2, 2, 3)) + 1)
        ]
        self.agents = [
            AgentProcess(machine.name, *common, names, machine, self.judge)
            for machine in self.machines
        ]
        self.frameworks = [
            FrameworkProcess(
                f"framework-{n}", *common, self.settings, names, variety.habits(random), self.judge
            )
            for n in range(1, random.choice((1, 2, 2, 3)) + 1)
        ]

    def _machine(self, name: str, total: Resources) -> Machine:
        devices = variety.inventory(str(self.seed), name)
        return Machine(name, self.clock, total, self.judge, devices)

    @property
    def processes(self) -> list[Process]:
        return [*self.masters, *self.agents, *self.frameworks]

    @property
    def steps(self) -> int:
        """The number of steps of all cores."""
        return sum(each.steps for each in self.masters) + sum(each.steps for each in self.agents)

    def run(self) -> None:
        """Run the world from the beginning to the end.

        Raises:
            AssertionError: if an invariant was violated.
        """
        for process in self.processes:
            process.start()
        for fault in self.faults:
            self.clock.at(fault.at, lambda fault=fault: self._inject(fault))  # type: ignore[misc]
        if variety.preempts(str(self.seed)):
            self._preempt(Random(f"{self.seed} preempt"))
        self.clock.run(self.until)
        self._heal()
        self._settle()

    def _leads(self, term: Term) -> bool:
        return term.revision == self.registry.revision

    def _inject(self, fault: Fault) -> None:
        self.clock.trace(f"fault: {fault}")
        if INJECTORS[fault.kind](self, fault):
            self.injected[fault.kind] += 1

    def _preempt(self, random: Random) -> None:
        """Have a master preempt one of the live tasks now and then."""
        live = [run.key for machine in self.machines for run in machine.live]
        if live:
            self.ask(partial(_preempted, random.choice(live)), _ignore)
        self.later(random.uniform(0.1, 1.5), lambda: self._preempt(random))

    def put_back(self, copy: reg.Copy) -> None:
        """Kill all masters, and replace the store."""
        for master in self.masters:
            master.crash(loses=True)
            self.registry.crashed(master.name)
        self.registry.put_back(copy)
        for framework in self.frameworks:
            # The restored store may lack a promised kill.
            framework.killed.clear()
        self.judge.on_store_replaced()

    def _resolve_later(self) -> None:
        """Let an operator act some time after a master has refused its store."""
        self.clock.after(1.0, self._resolve)

    def _resolve(self) -> None:
        if self.newest is not None:
            newest, self.newest = self.newest, None
            self.put_back(newest)
        else:
            for master in self.masters:
                master.accepts_old = True
        for master in self.masters:
            master.start()

    # Parts of fault injectors.

    def master(self, fault: Fault) -> MasterProcess:
        """Return the master of a fault: the leader more often than others."""
        leader = [each for each in self.masters if each.name == reg.name_of(self.registry.leader)]
        if leader and fault.who % 3:
            return leader[0]
        return self.masters[fault.who % len(self.masters)]

    def agent(self, fault: Fault) -> AgentProcess:
        return self.agents[fault.who % len(self.agents)]

    def framework(self, fault: Fault) -> FrameworkProcess:
        return self.frameworks[fault.who % len(self.frameworks)]

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action that is skipped if everything is healed by then."""
        self.clock.after(seconds, lambda: None if self.is_healed else action())

    def crash(self, process: Process, fault: Fault) -> bool:
        """Kill a process, and start it again later."""
        if not process.is_up:
            return False
        process.crash(bool(fault.salt & 1))
        self.later(fault.lasts, process.start)
        return True

    def pause(self, process: Process, fault: Fault) -> bool:
        """Pause a process for a while."""
        if not process.is_up or process.paused:
            return False
        process.pause()
        self.later(fault.lasts, process.resume)
        return True

    def cut_off(self, source: str, target: str, lasts: float) -> None:
        """Hold back messages from one process to the other for a while."""
        self.network.cut(source, target)
        self.later(lasts, lambda: self.network.heal(source, target))

    def ask(self, make_event: Callable[[int], Event], answered: Callable[[object], None]) -> bool:
        """Ask the leader once, without a retry."""
        leaders = [each for each in self.masters if each.term is not None and each.is_up]
        if leaders:
            leaders[0].ask(make_event, answered)
        return bool(leaders)

    def operate(self, name: str, action: AgentAction) -> bool:
        def answered(result: object) -> None:
            if isinstance(result, AgentStatus):
                self.judge.on_operated(name, action, result)

        return self.ask(lambda request: OperateAgent(request, name, action, "chaos"), answered)

    # The end.

    def _heal(self) -> None:
        """Undo every fault, and let frameworks finish."""
        self.clock.trace("everything is healed")
        self.is_healed = True
        self.judge.moments.clear()
        self.registry.slow_s = 0.0
        for agent in self.agents:
            agent.slow_s, agent.cannot_spawn = 0.0, False
            agent.is_full = agent.is_dir_gone = False
        self.network.heal_all()
        for process in self.processes:
            process.resume()
            process.start()
        for framework in self.frameworks:
            framework.settle()

    def _settle(self) -> None:
        """Run until everything has settled.

        Raises:
            Violation: if it does not settle in time.
        """
        limit = self.clock.now() + SETTLE_S
        is_probed = False
        while True:
            self.clock.run(self.clock.now() + 1.0)
            left = self._unsettled()
            if not left and not is_probed:
                is_probed = self._probe()
                continue
            if not left:
                self._ask_all()
                return
            if self.clock.now() > limit:
                raise Violation("never quiet: " + "; ".join(left[:12]))
            for process in self.processes:
                # A stopping agent may exit late.
                process.start()
            for framework in self.frameworks:
                framework.end_endless()
            if self.judge.is_store_old and self.clock.now() > limit - SETTLE_S + FORGOTTEN_S:
                self._end_forgotten()
            self._reactivate()
            self._release_holds()
            self._delete_reservations()

    def _end_forgotten(self) -> None:
        """Let an operator kill tasks that their frameworks may not know any more.

        An older store causes such tasks before a master refuses or accepts it. A framework that
        reconciles, and knows that a task has ended, withdraws it itself.
        """
        # A retired run acts no more, and the run that took over has not heard of the ends.
        able = [
            each for each in self.frameworks if each.habits.reconciles_s and not each.is_retired
        ]
        aware = {task_id for each in able for task_id in each.ended}
        # Not the run of the history, which is the newest: an older store may start a task again.
        live = {run.key[1] for machine in self.machines for run in machine.live}
        for task_id, history in self.judge.histories.items():
            is_queued = history.run is None and history.submitted and task_id not in aware
            if is_queued or task_id in live:
                kill = partial(OperatorKill, task_id=task_id, framework_id=history.framework_id)
                self.ask(lambda request, kill=kill: kill(request, grace_ms=None), _ignore)  # type: ignore[misc]

    def _probe(self) -> bool:
        """Let a framework decline all agents, and check that a task that it submits starts at once.

        Return False if the leader changed meanwhile, or no agent is left because streams hang. That
        proves nothing.

        Raises:
            Violation: if it does not.
        """
        (term,) = [each.term for each in self.masters if each.term and self._leads(each.term)]
        state = term.state
        agents = state.allocator._agents.agents.values()
        is_limited = any(each.limit for each in state.allocator.queries.roles().values())
        framework = next((each for each in self.frameworks if not each.is_retired), None)
        if framework is None or is_limited or not any(each.is_active for each in agents):
            return True
        framework.ask_for_offers()
        self.clock.run(self.clock.now() + 2.0)
        task_id = framework.submit_one()
        self.clock.run(self.clock.now() + 2.0)
        history = self.judge.histories[task_id]
        is_same = any(each.term is term for each in self.masters) and self._leads(term)
        is_same = is_same and any(each.is_active for each in agents)
        is_placed = history.placed or history.is_known
        claim = f"{task_id} was submitted after a decline, and is not placed"
        must(is_placed or not is_same, claim)
        framework.settle()
        return is_same

    def _ask_all(self) -> None:
        """Let every framework reconcile all of its tasks, and check that each is answered.

        Raises:
            Violation: if one is not answered.
        """
        self.judge.answered.clear()
        asked = [task for framework in self.frameworks for task in framework.ask_all()]
        self.clock.run(self.clock.now() + 2.0)
        silent = [task_id for task_id in asked if task_id not in self.judge.answered]
        if silent:
            raise Violation(f"RECONCILE is not answered for {silent}")

    def _reactivate(self) -> None:
        """Reactivate all agents that operators have withheld."""
        damaged = self.judge.damaged
        for record in self.registry.durable.agents.values():
            if not record.gone and (record.deactivated or record.drain is not None):
                self.operate(record.agent_id, Reactivate())
            if not record.gone and (self.judge.is_store_old or record.hostname in damaged):
                # The agent may have lost its id, or the older store may lack the declaration.
                names = {agent.state.agent_id for agent in self.agents}
                if record.agent_id not in names:
                    self.operate(record.agent_id, MarkGone())

    def _release_holds(self) -> None:
        """Let an operator release all holds and orphans: for roles, and whose release was lost."""
        terms = [each.term for each in self.masters if each.term and self._leads(each.term)]
        orphans = [hold_id for term in terms for hold_id in holds_and_orphans(term.state)]
        for hold_id in (*self.registry.durable.holds, *orphans):
            self.ask(partial(ReleaseHold, hold_id=hold_id), _ignore)

    def _delete_reservations(self) -> None:
        """Let an operator delete all reservations: they keep agents from others."""
        for reservation_id in self.registry.durable.reservations:
            delete = partial(DeleteReservation, reservation_id=reservation_id)
            self.ask(delete, _ignore)

    def _unsettled(self) -> list[str]:
        """Return in words everything that has not settled."""
        left = self.judge.unfinished()
        for framework in self.frameworks:
            if not framework.is_settled:
                left.append(f"{framework.name} waits: {framework.is_waiting_for}")
        terms = [each.term for each in self.masters if each.term and self._leads(each.term)]
        if not terms:
            left.append("there is no leader")
        for term in terms:
            state = term.state
            left += [
                f"the master has task {task.task_id} {task.state.name}"
                for each in state.frameworks.values()
                for task in each.tasks.values()
            ]
            for known in state.agents.values():
                if not known.in_pool or state.allocator.queries.free(known.agent_id) != known.total:
                    left.append(f"not all of {known.agent_id} is free")
        for agent in self.agents:
            left += [f"{agent.name} has task {key}" for key in agent.state.tasks]
            if agent.state.free != agent.state.total:
                left.append(f"not all of {agent.name} is free")
            left += [f"{agent.name} has volume {each}" for each in agent.machine.volumes]
        left += [f"the registry has task {key}" for key in self.registry.durable.tasks]
        left += [f"agents are reserved by {key}" for key in self.registry.durable.reservations]
        return left


def _preempted(key: Key, request: int) -> PreemptTask:
    """Return the command to preempt a task."""
    framework_id, task_id = key
    return PreemptTask(request, task_id, framework_id, None)


def _ignore(_: object) -> None:
    """Ignore the answer."""
