"""Random jobs and random ends of attempts: order is respected, and each task ends once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from croupier.apps.batch.job import BatchJob, Step
from croupier.apps.batch.machine import BatchTask, BatchTasks, NodeState
from croupier.apps.batch.plan import JobPlan
from croupier.apps.controller.outcomes import Outcome
from croupier.apps.job_file.gang_spec import GangSpec
from croupier.apps.job_file.task_spec import Backoff, TaskSpec


@st.composite
def jobs(draw: st.DrawFn) -> BatchJob:
    """A job without cycles: each step waits for earlier ones only, in a random order of names."""
    count = draw(st.integers(1, 8))
    names = draw(st.permutations([f"s{n}" for n in range(count)]))
    steps: list[Step] = []
    for name in names:
        size = draw(st.none() | st.integers(1, 4))
        spec = TaskSpec(
            command=("x",), retries=draw(st.integers(0, 2)), backoff=Backoff(draw(st.just(1.0)))
        )
        references = [step.name for step in steps] + [
            step.task_name(at) for step in steps for at in range(step.count)
        ]
        some = st.lists(st.sampled_from(references), max_size=3) if references else st.just([])
        values = None if size is None else tuple(map(str, range(size)))
        after, after_any = tuple(draw(some)), tuple(draw(some))
        gang = draw(st.none() | st.builds(GangSpec, st.integers(1, 3)))
        steps.append(Step(name, spec, values, "", after, after_any, gang))
    return BatchJob("j", tuple(draw(st.permutations(steps))))


def waited_for(job: BatchJob, step: Step) -> list[tuple[str, bool]]:
    """The names of all tasks that a task of `step` waits for."""
    found: list[tuple[str, bool]] = []
    for must, references in ((True, step.after), (False, step.after_any)):
        for reference in references:
            for each in job.steps:
                names = [each.task_name(at) for at in range(each.count)]
                if each.name == reference:
                    found += [(name, must) for name in names]
                elif reference in names:
                    found.append((reference, must))
    return found


class Checked:
    """Drives a machine, and checks each start and each end."""

    def __init__(self, machine: BatchTasks) -> None:
        self.machine, self.job = machine, machine.plan.job
        self.now = 0.0
        self.ids: set[str] = set()

    def states(self) -> dict[str, NodeState]:
        return {task.node.name: task.state for task in self.machine.tasks}

    def on_started(self, task: BatchTask) -> None:
        assert len(task.open_ids) == task.node.step.nodes
        assert self.ids.isdisjoint(task.open_ids), "a task id was used twice"
        self.ids.update(task.open_ids)
        states = self.states()
        for name, must in waited_for(self.job, task.node.step):
            assert states[name].is_final
            assert states[name] is NodeState.DONE or not must

    def check_skipped(self) -> None:
        states = self.states()
        for task in self.machine.tasks:
            if task.state is not NodeState.SKIPPED:
                continue
            needed = waited_for(self.job, task.node.step)
            assert all(states[name].is_final for name, _ in needed)
            assert any(must and states[name] is not NodeState.DONE for name, must in needed)
            assert states[task.cause] is NodeState.FAILED


OUTCOMES = st.sampled_from([Outcome.SUCCEEDED] * 4 + list(Outcome))


@given(jobs(), st.data())
def test_each_task_ends_once_in_order(job: BatchJob, data: st.DataObject) -> None:
    machine = BatchTasks(JobPlan(job))
    checked = Checked(machine)
    checked.check_skipped()
    steps = 0
    while not machine.is_over:
        steps += 1
        assert steps < 20_000
        for task in machine.take(data.draw(st.integers(1, 3))):
            checked.on_started(task)
        active = machine.active
        if active:
            task = data.draw(st.sampled_from(active))
            before = checked.states()
            if machine.on_member_end(data.draw(st.sampled_from(task.open_ids))):
                machine.on_end(task, data.draw(OUTCOMES), checked.now, 0.5)
            checked.check_skipped()
            for name, state in checked.states().items():
                assert not before[name].is_final or before[name] is state
        elif machine.is_stopped or not machine._ready:
            assert machine.next_due is not None, "nothing is active, ready or paused"
            checked.now = machine.next_due
        machine.on_time(checked.now)
        machine.check()
    assert all(task.state.is_final for task in machine.tasks)
    for task in machine.tasks:
        if task.state is not NodeState.FAILED:
            assert task.failures <= task.node.step.spec.retries


@given(jobs(), st.data())
def test_a_restored_run_ends_like_the_one_that_was_cut(job: BatchJob, data: st.DataObject) -> None:
    """Tasks fail by their name only; whatever is cut and restored, the ends are the same."""
    plan = JobPlan(job)
    failing = data.draw(st.sets(st.sampled_from([task.name for task in plan.tasks]), max_size=3))

    def outcome(task: BatchTask) -> Outcome:
        return Outcome.FAILED if task.node.name in failing else Outcome.SUCCEEDED

    def finished(machine: BatchTasks, most: int) -> BatchTasks:
        now = 0.0
        for _ in range(most):
            if machine.is_over:
                break
            machine.take(2)
            active = machine.active
            if active:
                machine.on_end(active[0], outcome(active[0]), now, 0.5)
            else:
                assert machine.next_due is not None
                now = machine.next_due
            machine.on_time(now)
        return machine

    whole = finished(BatchTasks(plan), 100_000)
    cut = finished(BatchTasks(plan), data.draw(st.integers(0, 20)))
    done = {task.node.index for task in cut.tasks if task.state is NodeState.DONE}
    again = BatchTasks(plan, (task for task in cut.tasks if task.launches))
    again.check()
    finished(again, 100_000)
    again.check()
    assert again.is_complete
    for first, second, before in zip(whole.tasks, again.tasks, cut.tasks, strict=True):
        assert (first.state, first.failures) == (second.state, second.failures)
        if before.node.index in done:
            assert second.launches == before.launches


@given(jobs(), st.data())
def test_after_a_stop_nothing_starts(job: BatchJob, data: st.DataObject) -> None:
    machine = BatchTasks(JobPlan(job))
    machine.take(data.draw(st.integers(0, 4)))
    machine.is_stopped = True
    for task in machine.active:
        machine.on_end(task, data.draw(st.sampled_from([Outcome.STOPPED, Outcome.SUCCEEDED])))
    assert machine.is_over
    assert machine.take(10) == []
    machine.check()
