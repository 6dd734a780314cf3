"""The invariants of an agent hold after any events in any order, and no update is lost.

The agent is killed at any time and loses all records that are not durable. The next agent recovers
from the durable ones.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Checkpoint,
)
from croupier.agent.core.events import NO_ENDING, Ending, Exceeded, Now
from croupier.agent.core.records import (
    TaskRecord,
    UpdateRecord,
    key_of,
)
from croupier.agent.core.recovery import recovered
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Killing, Running
from croupier.model.agent_orders import (
    AcknowledgeUpdate,
    KillTask,
    LaunchGroup,
    LaunchTask,
    ResendUpdates,
)
from croupier.model.health import Problem
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.isolation import OF_EVERY_AGENT, Usage
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo, TaskState
from croupier.model.task_group import GroupPart, TaskGroup, ends_rest
from tests.harness.effort import portion
from tests.property.agent_world import TOTAL, AgentWorld, Run

FRAMEWORKS = st.sampled_from([FrameworkId("F1"), FrameworkId("F2")])
TASKS = st.sampled_from([TaskId(f"t{n}") for n in range(4)])
MEMBERS = st.dictionaries(TASKS, st.sampled_from(GroupPart), min_size=1, max_size=3)
AMOUNTS = st.sampled_from(["cpus:1", "cpus:2;mem:64", "ports:[1-3]", "ports:[3-4]", "cpus:9"])

ENDINGS = st.sampled_from(
    [NO_ENDING, Ending(Usage(cpu_ms=1)), Ending(exceeded=Exceeded(Reason.MEMORY_LIMIT, "memory"))]
)
DISK = Exceeded(Reason.DISK_LIMIT, "disk")


def group_of(framework: FrameworkId, members: dict[TaskId, GroupPart], amount: str) -> LaunchGroup:
    """Return the order to launch a group."""
    group_id = "+".join(members)
    orders = []
    for task, part in members.items():
        info = TaskInfo(task, Command(("x",)), Resources.parse(amount))
        info = replace(info, group=TaskGroup(group_id, part))
        orders.append(LaunchTask(framework, info, DEFAULT_ROLE))
    return LaunchGroup(tuple(orders))


class AnAgent(AgentWorld):
    """Does to an agent what may happen to it."""

    @rule(
        framework=FRAMEWORKS,
        task=TASKS,
        amount=AMOUNTS,
        epoch=st.integers(0, 3),
        most_ms=st.sampled_from([0, 1500, 60_000]),
    )
    @precondition(lambda self: not self.state.voided and not self.looks)
    def launch(
        self, framework: FrameworkId, task: TaskId, amount: str, epoch: int, most_ms: int
    ) -> None:
        info = TaskInfo(task, Command(("x",)), Resources.parse(amount), max_completion_ms=most_ms)
        self.do(LaunchTask(framework, info, DEFAULT_ROLE, framework_epoch=epoch))

    @rule(framework=FRAMEWORKS, members=MEMBERS, amount=AMOUNTS)
    @precondition(lambda self: not self.looks)
    def launch_a_group(
        self, framework: FrameworkId, members: dict[TaskId, GroupPart], amount: str
    ) -> None:
        before = set(self.state.tasks)
        self.do(group_of(framework, members, amount))
        new = {key: self.state.tasks[key].is_live for key in self.state.tasks.keys() - before}
        assert len(set(new.values())) <= 1, "all are started, or none"

    @rule(framework=FRAMEWORKS, task=TASKS, grace=st.sampled_from([None, 0, 2000]))
    @precondition(lambda self: not self.looks)
    def kill(self, framework: FrameworkId, task: TaskId, grace: int | None) -> None:
        self.do(KillTask(framework, task, grace, Reason.KILLED_BY_FRAMEWORK))

    @rule(works=st.booleans(), reported=st.booleans())
    @precondition(lambda self: self.queue)
    def start_process(self, works: bool, reported: bool) -> None:
        """Start the first queued process; the agent may be killed before the answer."""
        key, run = self.queue.pop(0)
        if not self.state.wants_process(key):
            self.do(ev.NotStarted(key))
            return
        if not works:
            self.do(ev.LaunchFailed(key, "no", cause="no processes left" if reported else ""))
            return
        self.next_pid += 1
        assert run not in self.runs, "a task has one process"
        self.runs[run] = Run(self.next_pid)
        self.run_of[key] = run
        if reported:
            self.watched.add(key)
            self.do(ev.Started(key, self.next_pid))
        else:
            self.die()

    @rule(framework=FRAMEWORKS, task=TASKS, is_present=st.booleans())
    @precondition(lambda self: not self.looks)
    def exceed_a_limit(self, framework: FrameworkId, task: TaskId, is_present: bool) -> None:
        """Tell that a run exceeds a limit, perhaps an earlier one."""
        run = self.run_of.get((framework, task), "") if is_present else "0-0"
        self.do(ev.LimitExceeded((framework, task), run, DISK))

    @rule(framework=FRAMEWORKS, task=TASKS, code=st.sampled_from([0, 3]), ending=ENDINGS)
    def end_process(
        self, framework: FrameworkId, task: TaskId, code: int, ending: Ending = NO_ENDING
    ) -> None:
        key = (framework, task)
        run = self.runs.get(self.run_of.get(key, ""))
        if run is None or run.ended:
            return
        run.ended = (None, 9) if key in self.forced else (code, None)
        if key in self.watched:
            self.watched.discard(key)
            self.forced.discard(key)
            exit_code, signal = run.ended
            self.do(ev.Exited(key, exit_code, signal, ending=ending))

    @rule(known=st.booleans(), age_s=st.sampled_from([None, 0.0, 1e9]))
    @precondition(lambda self: self.looks)
    def look(self, known: bool, age_s: float | None = None) -> None:
        """Answer the first adoption."""
        key, name = self.looks.pop(0)
        run = self.runs.get(name)
        if run is None:
            self.do(ev.Vanished(key, "", never_started=True))
        elif run.ended is None:
            self.watched.add(key)
            self.do(ev.Adopted(key, run.pid, age_s))
        elif known:
            self.do(ev.Exited(key, *run.ended))
        else:
            self.do(ev.Vanished(key, "its shim was killed"))

    @rule()
    def die(self) -> None:
        """Kill the agent, and start another on the same records."""
        lost = {key_of(each) for each in self.disk.written if isinstance(each, UpdateRecord)}
        self.disk.written.clear()
        self.held = []
        self.open = False
        self.queue.clear()
        self.looks.clear()
        self.watched.clear()
        self.forced.clear()
        self.lives += 1
        before = self.state
        self.state = recovered(self.disk.compacted(), TOTAL, life=str(self.lives))
        self.state.features = OF_EVERY_AGENT
        assert self.state.agent_id == before.agent_id
        assert self.state.epochs.items() >= before.epochs.items()
        for key, task in before.tasks.items():
            again = self.state.tasks[key]
            if key in lost:
                assert (again.state, task.state) == (TaskState.STARTING, TaskState.RUNNING)
                assert again.run == task.run
                assert again.updates.sequence == task.updates.sequence - 1
                continue
            assert (again.state, again.status, again.run) == (task.state, task.status, task.run)
            assert again.updates.sequence == task.updates.sequence
        for key, task in self.state.tasks.items():
            # An update whose acknowledgement was not durable is sent again.
            self.made[key] = task.updates.sequence
            self.heard.setdefault(key, task.updates.sequence)
        self.state.check()
        self.do(ev.AgentStarted())
        live = {key for key, task in self.state.tasks.items() if task.is_live}
        assert {key for key, _ in self.looks} == live | self.state.voided.keys()
        assert self.state.adopting == len(self.looks)

    @rule(framework=FRAMEWORKS, task=TASKS)
    @precondition(lambda self: not self.looks and not self.state.voided)
    def die_before_it_is_durable(self, framework: FrameworkId, task: TaskId) -> None:
        """Kill the agent after a decision that was neither made durable nor performed."""
        before = set(self.state.tasks)
        info = TaskInfo(task, Command(("x",)), Resources.parse("cpus:1"))
        step(self.state, LaunchTask(framework, info, DEFAULT_ROLE), Now(self.now, 0))
        self.state = recovered(
            [*self.disk.compacted(), *self.disk.written], TOTAL, life=str(self.lives)
        )
        assert set(self.state.tasks) == before
        self.die()

    @rule(framework=FRAMEWORKS, members=MEMBERS, kept=st.integers(0, 8))
    @precondition(lambda self: not self.looks and not self.state.voided)
    def die_while_a_group_is_written(
        self, framework: FrameworkId, members: dict[TaskId, GroupPart], kept: int
    ) -> None:
        """Kill the agent while it writes the records of a group, before anything was started."""
        before = set(self.state.tasks)
        effects = step(self.state, group_of(framework, members, "cpus:1"), Now(self.now, 0))
        records = [each.record for each in effects if isinstance(each, Checkpoint)]
        new = {key_of(each) for each in records if isinstance(each, TaskRecord)}
        is_whole = kept >= len(records)
        self.disk.sync()
        again = recovered([*self.disk.compacted(), *records[:kept]], TOTAL, life=str(self.lives))
        live = {key for key in new if key in again.tasks and again.tasks[key].is_live}
        assert live in (set(), new)
        assert is_whole or not live
        assert before - again.tasks.keys() == set()
        self.state = recovered(self.disk.compacted(), TOTAL, life=str(self.lives))
        self.die()

    @rule(framework=FRAMEWORKS, task=TASKS, sequence=st.integers(0, 5))
    def acknowledge(self, framework: FrameworkId, task: TaskId, sequence: int) -> None:
        heard = self.heard.get((framework, task), 0)
        self.do(AcknowledgeUpdate(framework, task, min(sequence, heard)))

    @rule(framework=FRAMEWORKS)
    def resend(self, framework: FrameworkId) -> None:
        self.do(ResendUpdates(framework))

    @rule()
    def connect_or_lose(self) -> None:
        if self.open:
            self.open = False
            self.do(ev.Disconnected(self.sessions))
        else:
            self.open, self.sessions = True, self.sessions + 1
            self.do(ev.Connected(self.sessions))
            if self.state.session is not None and not self.state.tasks:
                named = self.state.agent_id or AgentId(f"A{self.sessions}")
                self.do(ev.MasterSeen(self.sessions), ev.Registered(named))

    @rule()
    @precondition(lambda self: self.open)
    def remove(self) -> None:
        self.do(ev.Removed())
        self.open = False
        self.do(ev.Disconnected(self.sessions))

    @rule(is_full=st.booleans(), is_thorough=st.booleans())
    def check_health(self, is_full: bool, is_thorough: bool) -> None:
        """Answer a health check."""
        problems = (Problem("disk", "it is full"),) if is_full else ()
        self.do(ev.HealthChecked(problems, is_thorough))

    @rule()
    def run_out_of_room(self) -> None:
        self.do(ev.DiskFull())
        assert not self.state.health.is_healthy

    @rule()
    def hold_no_longer(self) -> None:
        """Send the updates that waited for others."""
        self.disk.sync()
        self.send_held()

    @rule()
    def stop(self) -> None:
        self.do(ev.StopRequested())

    @rule(seconds=st.sampled_from([1.0, 10.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.state.next_deadline()
        if deadline is not None and deadline <= self.now:
            self.do(ev.DeadlinePassed())

    @invariant()
    def holds(self) -> None:
        self.state.check()
        for keys in self.state.groups.values():
            tasks = [self.state.tasks[key] for key in keys]
            left = [each for each in tasks if each.is_live]
            parts = [each.info.part for each in left]
            for ended in tasks:
                has_finished = ended.state is TaskState.FINISHED
                if not ended.is_live and ends_rest(ended.info.part, has_finished, parts):
                    assert all(each.kill is not None for each in left)
        for key in self.watched:
            run = self.runs[self.run_of[key]]
            task = self.state.tasks.get(key)
            phase = self.state.voided.get(key) if task is None else task.phase
            assert isinstance(phase, Running | Killing)
            assert phase.pid == run.pid

    def teardown(self) -> None:
        """Check that no resources are used once all processes have ended."""
        while self.looks:
            self.look(known=True)
        while self.queue:
            self.start_process(works=False, reported=True)
        for key in list(self.watched):
            self.end_process(*key, code=0)
        assert self.state.is_idle
        assert self.state.free == TOTAL
        self.state.check()
        self.disk.sync()
        again = recovered(self.disk.compacted(), TOTAL)
        assert again.is_idle
        assert again.tasks.keys() == self.state.tasks.keys()


AnAgent.TestCase.settings = settings(
    max_examples=portion(150), stateful_step_count=40, deadline=None
)
TestAnAgent = AnAgent.TestCase
