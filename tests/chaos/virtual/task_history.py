"""The history of a task, and violations of invariants."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.agent.core.status_updates import FAULTS_OF_EXECUTORS
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState, TaskStatus
from tests.chaos.virtual.framework import FrameworkProcess
from tests.chaos.virtual.machine import Machine, Run


class Violation(AssertionError):
    """An invariant was violated."""


def must(condition: bool, message: str) -> None:
    """Check that `condition` holds.

    Raises:
        Violation: if it does not.
    """
    if not condition:
        raise Violation(message)


@dataclass(slots=True)
class TaskHistory:
    """The history of one task, as the judge observed it.

    Attributes:
        framework_id, client_id: the framework that named it, and the run of its program.
        accepted, refused: the master's verdict.
        recorded: whether the ledger has it.
        placed: whether the ledger has it with an agent.
        lined_up: whether the ledger has, or had, it at an agent before it was placed there.
        recalled: the agents that were asked to return it, or have returned it, since it was ordered
            there.
        submitted: whether the master placed it.
        run: its process, once there was one.
        killers: the parties that wanted it killed.
        kill_promised: whether a master has promised to kill it.
        ends: terminal updates that the handler received, with the run of the program.
        is_known: whether the handler has received a terminal update, maybe by RECONCILE.
        end_acknowledged: whether the ledger forgot the task because its end was acknowledged.
        excused: whether its end need not arrive, since its framework was removed.
        failed_ends: runs of programs whose handler failed on its end as an answer to RECONCILE.
        is_over: whether its agent has reported its end.
        requeues: how often it was requeued, in the newest store.
        restarts: the numbers of the first updates of its further runs.
        group: all tasks that were asked for with it as its group.
        gang: all members of its gang.
        left_at: the machines that were lost with a run of it, when its gang started again.
    """

    owner: FrameworkProcess
    framework_id: FrameworkId
    client_id: str
    accepted: bool = False
    refused: bool = False
    recorded: bool = False
    placed: bool = False
    lined_up: bool = False
    recalled: set[str] = field(default_factory=set)
    submitted: bool = False
    run: Run | None = None
    machine: Machine | None = None
    killers: set[str] = field(default_factory=set)
    kill_promised: bool = False
    sequences: dict[str, int] = field(default_factory=dict)
    ends: list[tuple[str, TaskStatus]] = field(default_factory=list)
    is_known: bool = False
    end_acknowledged: bool = False
    excused: bool = False
    is_over: bool = False
    failed_ends: set[str] = field(default_factory=set)
    requeues: int = 0
    restarts: set[int] = field(default_factory=set)
    group: tuple[TaskId, ...] = ()
    gang: tuple[TaskId, ...] = ()
    left_at: set[str] = field(default_factory=set)

    def on_requeued(self, count: int, sequence: int) -> None:
        """Check that a run has ended before the ledger has its task as queued again."""
        must(self.run is None or not self.run.lives, "it is requeued, and still runs")
        self.requeues = count
        self.restarts.add(sequence + 1)
        self.run, self.machine = None, None
        self.placed = self.lined_up = self.is_over = False

    def check_order(self, client: str, status: TaskStatus, is_newest: bool) -> None:
        """Check that an update follows those that the program has received before.

        `is_newest`: whether `client` is the newest run of the program.
        """
        shown = f"{status.task_id} {status.state.name} {status.sequence}"
        number, last = status.sequence, self.sequences.get(client)
        if last is not None or client == self.client_id:
            # A later run of the program knows everything that was acknowledged.
            follows = number == (last or 0) + 1 or number == MASTER_SEQUENCE != last
            # Earlier updates are not sent once RECONCILE was answered with the end.
            # The master itself takes the end of a run after which a task is requeued.
            follows = follows or (number in self.restarts and number > (last or 0))
            follows = follows or (status.state.is_terminal and client in self.failed_ends)
            must(follows, f"{client} is shown {shown} after {last}")
        self.sequences[client] = number
        settled = self.end_acknowledged and not self.excused and is_newest
        must(not settled, f"{shown} is sent though its end was acknowledged")
        mine = [end for whose, end in self.ends if whose == client]
        must(not mine, f"{client} is shown {shown} after the task's end")
        if status.state.is_terminal:
            self.ends.append((client, status))
            first_client, first = self.ends[0]
            same = (first.state, first.exit_code) == (status.state, status.exit_code)
            # An update that a run did not acknowledge is lost to the next one once its agent is
            # given up; a run that was paused may handle it later than the next one.
            is_gone = TaskState.GONE_BY_OPERATOR in (first.state, status.state)
            given_up = first_client != client and is_gone
            shown_first = f"{first.state.name} {first.exit_code}"
            must(same or given_up, f"{shown} was sent before as {shown_first}")

    def check_reconciled(self, client: str, status: TaskStatus) -> None:
        """Check an answer to RECONCILE: the latest update, which may be early or repeated."""
        shown = f"{status.task_id} {status.state.name} {status.sequence}"
        ends = [end for whose, end in self.ends if whose == client]
        is_live = not status.state.is_terminal
        must(not (ends and is_live), f"{client} is shown {shown} after the task's end")
        self.sequences[client] = max(self.sequences.get(client, 0), status.sequence)
        if not is_live and not ends:
            self.ends.append((client, status))

    def check_truth(self, status: TaskStatus, is_gone: bool) -> None:
        """Check a terminal update against the real end of the process.

        `is_gone`: an operator may have declared the agent gone.
        """
        run, state = self.run, status.state
        claim = f"{status.task_id} is reported {state.name} {status.reason.name}"
        claim += f" ({status.message}), code {status.exit_code}"
        if state is TaskState.GONE_BY_OPERATOR:
            must(is_gone, f"{claim}, but no operator said so")
            return
        must(run is None or not run.lives, f"{claim}, but it runs")
        lost = state is TaskState.GONE and status.reason is Reason.AGENT_RESTARTED
        must(not lost, f"{claim}, but no agent has lost anything")
        if run is None:
            never = {TaskState.KILLED, TaskState.DROPPED, TaskState.GONE, TaskState.FAILED}
            never |= {TaskState.ERROR, TaskState.LOST}
            must(state in never, f"{claim}, but never ran")
            return
        if run.executor is not None:
            self._check_in_executor(run, status, claim)
            return
        truth = f"{claim}, but it ended with {run.exit_code}, signal {run.signal}"
        must(state is not TaskState.DROPPED, truth)
        if run.rebooted:
            must(state in (TaskState.GONE, TaskState.KILLED), truth)
            return
        if run.vanished:
            must(state in (TaskState.FAILED, TaskState.GONE, TaskState.KILLED), truth)
            return
        must((status.exit_code, status.signal) == (run.exit_code, run.signal), truth)
        timed_out = status.reason is Reason.TIMED_OUT
        match state:
            case TaskState.FAILED if timed_out:
                lasted = run.ended - run.started
                must(0 < run.most_s <= lasted, f"{claim}, but it lasted {lasted:.3f}")
            case TaskState.FINISHED:
                must(run.exit_code == 0, truth)
            case TaskState.FAILED:
                # An executor may exit in the moment in which its agent ends it for a fault.
                must(run.exit_code != 0 or status.reason in FAULTS_OF_EXECUTORS, truth)
            case TaskState.KILLED:
                must(not timed_out, truth)
                wanted = self.killers or status.reason is not Reason.KILLED_BY_FRAMEWORK
                must(bool(wanted), f"{claim}, but without a request")
            case _:
                must(False, truth)

    def _check_in_executor(self, run: Run, status: TaskStatus, claim: str) -> None:
        """Check the end of a task in an executor: as that knows it, or with the executor's end."""
        assert run.executor is not None
        truth = f"{claim}, but it ended as {run.outcome}"
        by_agent = {TaskState.FAILED, TaskState.KILLED, TaskState.GONE}
        timed_out = status.state is TaskState.FAILED and status.reason is Reason.TIMED_OUT
        is_same = status.state is run.outcome or (timed_out and run.outcome is TaskState.KILLED)
        with_executor = not run.executor.lives and status.state in by_agent
        must(is_same or with_executor, truth)
