"""Lined-up tasks with the cores of the master and of an agent: each runs once, whatever crosses.

Messages between the two wait until a rule delivers them, in order, and are lost with the session.
"""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AgentTask, Register, TasksReturned
from croupier.master.core.hold_commands import CreateHold
from croupier.master.core.messages import Registered
from croupier.master.core.step import Event
from croupier.model.agent_orders import LaunchTask
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, HoldId, TaskId
from croupier.model.resources import Resources
from tests.harness.effort import portion
from tests.harness.world import World, make_task

TOTAL = Resources.parse("cpus:2;mem:2GB")
HOST = AgentId("A1")


class LineMachine(RuleBasedStateMachine):
    """An agent with two slots, a framework that submits, and one that takes offers."""

    @initialize(is_held=st.booleans())
    def begin(self, is_held: bool) -> None:
        self.world = World()
        self.agent = AgentState.of(TOTAL, HOST)
        self.number, self.tasks, self.at_ms = 0, 0, 1_000
        self.session: SessionId | None = None
        self.reports: deque[Event] = deque()
        self.read = 0
        self.spawned: Counter[Key] = Counter()
        self.returned: set[Key] = set()
        self.connect()
        self.framework = self.world.framework(suppressed=True, failover_timeout_s=1e6)
        self.other = self.world.framework(demand="cpus:1;mem:1GB", count=0)
        if is_held:
            # One of the slots is in a hold for the role of both.
            role = self.world.state.frameworks[FrameworkId("m-F1")].roles[0]
            wanted = calls.MakeHold(HoldId("h1"), Resources.parse("cpus:1;mem:1GB"))
            self.world.do(CreateHold(1, HOST, role, wanted))
            assert self.world.state.holds
        self.submit(14)
        for _ in range(3):
            # Once a duration is known, several are lined up.
            self.orders_arrive(20)
            self.process_moves(0, ends=True)
            self.reports_arrive(20)

    def decide(self, event: ev.Event) -> None:
        """Step the agent; its messages wait."""
        self.at_ms += 7
        for effect in step(self.agent, event, ev.Now(self.at_ms / 1000, self.at_ms)):
            match effect:
                case fx.Spawn(key):
                    assert key not in self.returned
                    self.spawned[key] += 1
                case fx.ReturnTasks(_, keys):
                    self.returned.update(keys)
                    assert self.session is not None
                    self.reports.append(TasksReturned(self.session, keys))
                case fx.SendUpdates(_, statuses):
                    assert self.session is not None
                    self.reports.append(AgentReported(self.session, statuses))
                case fx.SendRegister():
                    self.register()
                case _:
                    pass
        self.agent.check()

    def register(self) -> None:
        tasks = tuple(
            AgentTask(
                task.framework_id, task.info, task.status, tuple(task.updates.waiting), task.role
            )
            for task in self.agent.tasks.values()
        )
        self.session = SessionId(next(self.world._sessions))
        self.read = 0
        # REGISTER is handled before any other message.
        register = Register(self.session, HOST, "h", TOTAL, {}, tasks=tasks, lines_up=True)
        self.world.do(register)

    @rule()
    def connect(self) -> None:
        if self.session is None:
            self.number += 1
            self.decide(ev.Connected(self.number))

    @rule(both=st.booleans())
    def session_ends(self, both: bool) -> None:
        """End the session; what is under way is lost."""
        if self.session is not None:
            session, self.session = self.session, None
            self.reports.clear()
            self.decide(ev.Disconnected(self.number))
            if both and session in self.world.state.peers:
                self.world.end_session(session)

    @rule(number=st.integers(1, 6))
    def submit(self, number: int) -> None:
        names = [f"t{self.tasks + n}" for n in range(number)]
        self.tasks += number
        self.world.call(self.framework, calls.Submit(tuple(make_task(name) for name in names)))

    @rule(pick=st.integers(0, 20))
    def withdraw(self, pick: int) -> None:
        self.world.call(self.framework, calls.Withdraw((TaskId(f"t{pick}"),)))

    @rule(pick=st.integers(0, 20))
    def kill(self, pick: int) -> None:
        self.world.call(self.framework, calls.Kill(TaskId(f"t{pick}"), None))

    @rule(count=st.integers(0, 2))
    def other_wants(self, count: int) -> None:
        wanted = Demand(Resources.parse("cpus:1;mem:1GB"), count)
        self.world.call(self.other, calls.UpdateDemand((wanted,)))
        self.world.decline(self.other, 0.0)

    @rule(number=st.integers(1, 8))
    def orders_arrive(self, number: int) -> None:
        if self.session is None:
            return
        for _ in range(number):
            sent = self.world.sent.get(self.session, [])
            if self.read >= len(sent) or self.session not in self.world.state.peers:
                return
            order = sent[self.read]
            self.read += 1
            if isinstance(order, Registered):
                self.decide(ev.Registered(HOST))
                continue
            if isinstance(order, LaunchTask):
                self.returned.discard((order.framework_id, order.task.task_id))
            self.decide(order)  # type: ignore[arg-type]

    @rule(number=st.integers(1, 8))
    def reports_arrive(self, number: int) -> None:
        while number and self.reports:
            number -= 1
            self.world.do(self.reports.popleft())
        assert self.session not in self.world.closed

    @rule(pick=st.integers(0, 3), ends=st.booleans())
    def process_moves(self, pick: int, ends: bool) -> None:
        live = [task for task in self.agent.tasks.values() if task.is_live]
        if not live:
            return
        task = live[pick % len(live)]
        if not task.pid:
            self.decide(ev.Started(task.key, 7))
        elif ends:
            self.decide(ev.Exited(task.key, 0))

    @rule()
    def framework_acknowledges(self) -> None:
        framework = self.world.state.frameworks[self.world.framework_id(self.framework)]
        for task in list(framework.tasks.values()):
            if task.state.is_terminal:
                number = task.status.sequence
                acks = ((task.agent_id, task.task_id, number),)
                self.world.call(self.framework, calls.Acknowledge(acks))

    @invariant()
    def each_runs_once(self) -> None:
        if hasattr(self, "spawned"):
            assert all(number == 1 for number in self.spawned.values())

    def teardown(self) -> None:
        """All tasks run or end once nothing is lost any more."""
        if not hasattr(self, "spawned"):
            return
        self.world.call(self.other, calls.Suppress())
        self.session_ends(both=True)
        self.connect()
        for _ in range(6 * self.tasks):
            self.orders_arrive(100)
            self.process_moves(0, ends=True)
            self.reports_arrive(100)
        self.orders_arrive(100)
        self.reports_arrive(100)
        framework = self.world.state.frameworks[self.world.framework_id(self.framework)]
        assert all(task.state.is_terminal for task in framework.tasks.values())
        assert self.agent.free == TOTAL
        assert not self.agent.line


LineMachine.TestCase.settings = settings(
    max_examples=portion(150),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLine = LineMachine.TestCase
