"""An agent's core with a simulated master, processes, disk and clock."""

from __future__ import annotations

from collections import defaultdict
from signal import SIGKILL

from hypothesis.stateful import RuleBasedStateMachine

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Adopt,
    Checkpoint,
    Effect,
    Forget,
    ForgetRun,
    HealthChanged,
    Moved,
    RefuseLaunch,
    SendRegister,
    SendUpdates,
    Signal,
    Spawn,
    is_urgent,
)
from croupier.agent.core.events import Event, Now
from croupier.agent.core.records import (
    Place,
    Record,
    forgets,
    place_of,
)
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.model.health import Problem
from croupier.model.isolation import OF_EVERY_AGENT
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskState, TaskStatus

TOTAL = Resources.parse("cpus:4;mem:128;ports:[1-4]")

Ended = tuple[int | None, int | None]


class Disk:
    """Durable records, and those that are not durable yet."""

    def __init__(self) -> None:
        self.durable: list[Record] = []
        self.written: list[Record] = []

    def sync(self) -> None:
        self.durable += self.written
        self.written = []

    def compacted(self) -> list[Record]:
        kept: dict[Place, Record] = {}
        for record in self.durable:
            place = place_of(record)
            kept.pop(place, None)
            kept[place] = record
            if forgets(record):
                kept = {p: r for p, r in kept.items() if p[0] != place[0]}
        return list(kept.values())


class Run:
    """The process of a task, which outlives the agent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: Ended | None = None


class AgentWorld(RuleBasedStateMachine):
    """Simulates the master, the processes, the disk and the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.lives = 1
        self.state = AgentState.of(TOTAL, life="1")
        self.state.features = OF_EVERY_AGENT
        self.now = 0.0
        self.sessions = 0
        self.open = False
        self.runs: dict[str, Run] = {}
        self.run_of: dict[Key, str] = {}
        self.watched: set[Key] = set()
        self.queue: list[tuple[Key, str]] = []
        self.looks: list[tuple[Key, str]] = []
        self.forced: set[Key] = set()
        # The first cause for which a task was asked to end.
        self.causes: dict[Key, Reason] = {}
        self.heard: defaultdict[Key, int] = defaultdict(int)
        self.made: defaultdict[Key, int] = defaultdict(int)
        self.held: list[SendUpdates] = []
        self.next_pid = 100
        self.reported_problems: tuple[Problem, ...] = ()
        self.do(ev.AgentStarted())

    def do(self, *events: Event) -> None:
        """Decide a batch, make it durable and perform it."""
        effects = [e for event in events for e in step(self.state, event, Now(self.now, 0))]
        checkpoints = [e for e in effects if isinstance(e, Checkpoint)]
        self.disk.written += [each.record for each in checkpoints]
        if any(map(is_urgent, effects)):
            self.disk.sync()
        for effect in effects:
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Moved(status):
                self.check_move(status)
            case SendUpdates(may_wait=True):
                self.held.append(effect)
            case SendUpdates():
                self.send_held()
                self.send(effect)
            case SendRegister(session):
                self.held = []
                self.reported_problems = self.state.health.problems
                assert self.open
                assert session == self.sessions
                assert not self.looks
                for key, task in self.state.tasks.items():
                    self.heard[key] = task.updates.sequence
            case Spawn(key, run, _):
                assert run not in self.runs, "no run is started twice"
                self.queue.append((key, run))
            case Adopt(key, run):
                self.looks.append((key, run))
            case Signal(key, 0, number):
                assert number is SIGKILL, "before a start is known, only SIGKILL is sent"
                assert key in dict(self.queue)
            case Signal(key, pid, number):
                assert key in self.watched, "only watched processes are signalled"
                assert self.runs[self.run_of[key]].pid == pid, "no signal hits an unrelated process"
                if number is SIGKILL:
                    self.forced.add(key)
            case ForgetRun(_, run):
                ended = self.runs.pop(run, None)
                assert ended is None or ended.ended, "the agent forgets a run only after it ended"
            case Forget(key):
                self.made.pop(key, None)
                self.heard.pop(key, None)
            case _:
                self.perform_health(effect)

    def send_held(self) -> None:
        held, self.held = self.held, []
        for effect in held:
            if self.open and effect.session == self.sessions:
                self.send(effect)

    def send(self, effect: SendUpdates) -> None:
        assert self.open
        assert effect.session == self.sessions
        assert not self.disk.written, "what is sent is durable"
        for status in effect.statuses:
            key = (status.framework_id, status.task_id)
            assert status.sequence <= self.heard[key] + 1, "no update is skipped"
            self.heard[key] = max(self.heard[key], status.sequence)

    def check_move(self, status: TaskStatus) -> None:
        """Check the number of an update, and its reason."""
        key = (status.framework_id, status.task_id)
        assert status.sequence == self.made[key] + 1, "sequence numbers have no gaps"
        self.made[key] = status.sequence
        if status.state is TaskState.KILLING:
            assert self.causes.setdefault(key, status.reason) is status.reason
        elif status.state.is_terminal:
            self.check_end(status, self.causes.pop(key, None))

    def check_end(self, status: TaskStatus, cause: Reason | None) -> None:
        """Check that the first cause of an end counts."""
        if cause is not None:
            assert status.reason is cause
            assert status.state is (TaskState.FAILED if cause.is_limit else TaskState.KILLED)
        elif status.reason.is_limit:
            assert status.state is TaskState.FAILED
            assert status.reason is Reason.MEMORY_LIMIT
            assert status.exit_code != 0

    def perform_health(self, effect: Effect) -> None:
        match effect:
            case RefuseLaunch(session, key):
                assert self.open
                assert session == self.sessions
                assert key not in self.state.tasks, "a refused launch leaves no task"
                assert self.reported_problems, "the agent reports its problems before it refuses"
            case HealthChanged(session, problems):
                assert session == self.state.session
                self.reported_problems = problems
            case _:
                pass
