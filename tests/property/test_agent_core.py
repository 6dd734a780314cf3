"""Whatever happens to an agent, in whatever order, its invariants hold and nothing is lost."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Effect,
    Force,
    Forget,
    Introduce,
    Moved,
    SendUpdates,
    Signal,
)
from croupier.agent.core.events import Event, Now
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo

FRAMEWORKS = st.sampled_from([FrameworkId("F1"), FrameworkId("F2")])
TASKS = st.sampled_from([TaskId(f"t{n}") for n in range(4)])
AMOUNTS = st.sampled_from(["cpus:1", "cpus:2;mem:64", "ports:[1-3]", "ports:[3-4]", "cpus:9"])
TOTAL = Resources.parse("cpus:4;mem:128;ports:[1-4]")


class AnAgent(RuleBasedStateMachine):
    """Plays the master, the processes and the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AgentState.of(TOTAL)
        self.now = 0.0
        self.sessions = 0
        self.open = False
        self.pids: dict[Key, int] = {}
        self.forced: set[Key] = set()
        self.heard: defaultdict[Key, int] = defaultdict(int)
        self.made: defaultdict[Key, int] = defaultdict(int)
        self.next_pid = 100

    def do(self, event: Event) -> None:
        for effect in step(self.state, event, Now(self.now, 0)):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Moved(status):
                key = (status.framework_id, status.task_id)
                assert status.sequence == self.made[key] + 1, "numbers have no gaps"
                self.made[key] = status.sequence
            case SendUpdates(session, statuses):
                assert self.open
                assert session == self.sessions
                for status in statuses:
                    key = (status.framework_id, status.task_id)
                    assert status.sequence <= self.heard[key] + 1, "none is left out"
                    self.heard[key] = max(self.heard[key], status.sequence)
            case Introduce(session):
                assert self.open
                assert session == self.sessions
                for key, task in self.state.tasks.items():
                    self.heard[key] = task.updates.sequence
            case Signal(key, pid, force):
                assert self.pids[key] == pid, "no signal hits a stranger"
                if force is Force.MAKE:
                    self.forced.add(key)
            case Forget(key):
                self.made.pop(key, None)
                self.heard.pop(key, None)
            case _:
                pass

    @rule(framework=FRAMEWORKS, task=TASKS, amount=AMOUNTS)
    @precondition(lambda self: not self.state.voided)
    def launch(self, framework: FrameworkId, task: TaskId, amount: str) -> None:
        self.do(ev.Launch(framework, TaskInfo(task, Command(("x",)), Resources.parse(amount))))

    @rule(framework=FRAMEWORKS, task=TASKS, grace=st.sampled_from([None, 0, 2000]))
    def kill(self, framework: FrameworkId, task: TaskId, grace: int | None) -> None:
        self.do(ev.Kill(framework, task, grace, Reason.KILLED_BY_FRAMEWORK))

    @rule(framework=FRAMEWORKS, task=TASKS, works=st.booleans())
    def start_process(self, framework: FrameworkId, task: TaskId, works: bool) -> None:
        key = (framework, task)
        if not self.state.wants_process(key):
            return
        if not works:
            self.do(ev.LaunchFailed(key, "no"))
            return
        self.next_pid += 1
        assert key not in self.pids, "a task has one process"
        self.pids[key] = self.next_pid
        self.do(ev.Started(key, self.next_pid))

    @rule(framework=FRAMEWORKS, task=TASKS, code=st.sampled_from([0, 3]))
    def end_process(self, framework: FrameworkId, task: TaskId, code: int) -> None:
        key = (framework, task)
        if self.pids.pop(key, None):
            self.do(ev.Exited(key, signal=9) if key in self.forced else ev.Exited(key, code))
            self.forced.discard(key)

    @rule(framework=FRAMEWORKS, task=TASKS, sequence=st.integers(0, 5))
    def acknowledge(self, framework: FrameworkId, task: TaskId, sequence: int) -> None:
        heard = self.heard.get((framework, task), 0)
        self.do(ev.Acknowledge(framework, task, min(sequence, heard)))

    @rule(framework=FRAMEWORKS)
    def resend(self, framework: FrameworkId) -> None:
        self.do(ev.Resend(framework))

    @rule()
    def connect_or_lose(self) -> None:
        if self.open:
            self.open = False
            self.do(ev.Disconnected(self.sessions))
        else:
            self.open, self.sessions = True, self.sessions + 1
            self.do(ev.Connected(self.sessions))
            if self.state.session is not None and not self.state.tasks:
                self.do(ev.Registered(self.state.agent_id or AgentId(f"A{self.sessions}")))

    @rule()
    @precondition(lambda self: self.open)
    def remove(self) -> None:
        self.do(ev.Removed())
        self.open = False
        self.do(ev.Disconnected(self.sessions))

    @rule()
    def stop(self) -> None:
        self.do(ev.StopAsked())

    @rule(seconds=st.sampled_from([1.0, 10.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.state.next_deadline()
        if deadline is not None and deadline <= self.now:
            self.do(ev.Due())

    @invariant()
    def holds(self) -> None:
        self.state.check()
        for key, pid in self.pids.items():
            known = self.state.tasks.get(key)
            assert self.state.voided.get(key) == pid or (known is not None and known.pid == pid)

    def teardown(self) -> None:
        """Once all processes end, nothing is held."""
        for key in list(self.pids):
            self.pids.pop(key)
            self.do(ev.Exited(key, signal=9))
        for key in list(self.state.tasks):
            if self.state.wants_process(key):
                self.do(ev.LaunchFailed(key, "no"))
        assert self.state.is_idle
        assert self.state.free == TOTAL
        self.state.check()


AnAgent.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnAgent = AnAgent.TestCase
