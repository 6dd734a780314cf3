"""A framework: a correct program on the SDK's ledger of calls and book of updates.

It accepts offers with tasks, declines, kills, reconciles, and handles updates at once or later.
Every second one also submits tasks and withdraws some. A crash loses everything but its id, the
number of tasks that it has named, and its endless, killed and submitted tasks.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from croupier.master.core import calls
from croupier.master.core import messages as to
from croupier.master.core.events import FrameworkCalled, Received, Subscribe
from croupier.master.core.settings import Settings
from croupier.model.errors import CroupierError, FailedOver, NotFound, NotLeader, Removed
from croupier.model.ids import AgentId, FrameworkId, HoldId, OfferId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskStatus
from croupier.model.verdict import Verdict
from croupier.net.backoff import Backoff
from croupier.sdk.core.calls import CallLedger
from croupier.sdk.core.updates import UpdateBook, UpdateDecision
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.network import End, Ended, Network
from tests.chaos.virtual.process import Process
from tests.chaos.virtual.variety import Habits
from tests.chaos.virtual.workload import SUBMITTED_SIZES, Workload

if TYPE_CHECKING:
    from tests.chaos.virtual.judge import Judge

SUBSCRIBE_TIMEOUT_S = 6.0


class FrameworkProcess(Process):
    """A framework's program.

    Attributes:
        framework_id: survives crashes; empty before the first SUBSCRIBED.
        named: the number of tasks named so far; survives crashes.
        is_launching: whether it still accepts offers.
        held: holds that it has made and not released; survives crashes.
        deaf_until: the time until which it handles no updates.
        endless: tasks that run until they are killed; survives crashes.
        killed: tasks that a master has promised to kill; survives crashes.
        submitted: submitted tasks that may not have ended; survives crashes.
    """

    def __init__(
        self,
        name: str,
        clock: TracedClock,
        network: Network,
        seed: str,
        settings: Settings,
        masters: tuple[str, ...],
        habits: Habits,
        judge: Judge,
    ) -> None:
        super().__init__(name, clock, network, seed)
        self.settings, self.masters = settings, masters
        self.habits, self.judge = habits, judge
        self.framework_id = FrameworkId("")
        self.named = 0
        self.is_launching, self.deaf_until = True, 0.0
        self.endless: set[TaskId] = set()
        self.killed: set[TaskId] = set()
        self.submitted: set[TaskId] = set()
        self.held: list[HoldId] = []
        self._workload = Workload(self, seed)
        self._forget()

    def _forget(self) -> None:
        """Reset everything that a crash loses."""
        self.ledger: CallLedger[calls.Call] = CallLedger(512)
        self.updates = UpdateBook()
        self.queue: deque[TaskStatus] = deque()
        self.ended: set[TaskId] = set()
        self.mine: list[TaskId] = []
        self.offers: dict[OfferId, tuple[to.Offered, float]] = {}
        self.is_subscribed = False
        self.executors: dict[AgentId, TaskId] = {}
        self._acks: dict[TaskId, tuple[AgentId, int]] = {}
        self._end: End | None = None
        self._heard_at = 0.0
        self._stream = 0
        self._hops = 0
        self._backoff = Backoff(0.1, 3.0, self.random)

    @property
    def client_id(self) -> str:
        return f"{self.name}-c{self.life}"

    @property
    def is_settled(self) -> bool:
        """Whether no call, acknowledgement or update is pending."""
        if self.is_retired:
            return True
        return self.is_subscribed and not len(self.ledger) and not self._acks and not self.queue

    # The life of the process.

    def take_over(self, older: FrameworkProcess) -> None:
        """Become a newer run of the same program; share the state that survives crashes."""
        self.framework_id = older.framework_id
        self.endless, self.killed = older.endless, older.killed
        self.submitted, self.held = older.submitted, older.held
        self.is_launching = older.is_launching

    def on_start(self) -> None:
        self._begin()
        self._workload.begin()

    def _begin(self) -> None:
        self._forget()
        self._connect(self.random.choice(self.masters))
        if self.habits.reconciles_s:
            self.later(self.habits.reconciles_s, self._reconcile)
        if self._workload.submits:
            self.later(1.0, self._workload.submit)

    def _connect(self, master: str) -> None:
        if self._end is not None:
            self._end.close()
        self._end = self.network.connect(self.name, master, self)
        self._stream += 1
        self._heard_at = self.clock.now()
        self.is_subscribed = False
        self._send(
            partial(
                Subscribe,
                framework_id=self.framework_id,
                name=self.name,
                roles=(self.habits.role,),
                client_id=self.client_id,
                failover_timeout_s=self.habits.failover_timeout_s,
                suppressed=not self.is_launching,
            )
        )
        stream = self._stream
        self.later(SUBSCRIBE_TIMEOUT_S, lambda: self._watch(stream))

    def _watch(self, stream: int) -> None:
        """Disconnect from a silent master."""
        if stream != self._stream or self._end is None:
            return
        silence_s = 5 * self.settings.heartbeat_s if self.is_subscribed else SUBSCRIBE_TIMEOUT_S
        if self.clock.now() - self._heard_at >= silence_s:
            self._lost("")
        else:
            if self.is_subscribed:
                self._beat()
            self.later(self.settings.heartbeat_s, lambda: self._watch(stream))

    def _lost(self, leader: str) -> None:
        """Connect again after the stream has ended."""
        if self._end is not None:
            self._end.close()
            self._end = None
        self.is_subscribed = False
        self._stream += 1
        self.offers.clear()
        stream = self._stream
        if leader and self._hops < 3:
            self._hops += 1
            wait_s, master = 0.0, leader
        else:
            self._hops = 0
            wait_s, master = self._backoff.next_s(), self.random.choice(self.masters)

        def again() -> None:
            if stream == self._stream:
                self._connect(master)

        self.later(wait_s, again)

    # Messages from the master.

    def turn(self) -> None:
        """Handle the messages and updates that have arrived."""
        for end, message in self.taken():
            if end is self._end:
                self._heard_at = self.clock.now()
                self._take(message)
        self._handle()
        self._flush()

    def _take(self, message: object) -> None:
        match message:
            case Ended(error):
                self._on_ended(error)
            case to.Subscribed(framework_id):
                self.framework_id = framework_id
                self.is_subscribed = True
                self._hops = 0
                self._backoff.reset()
                self.ledger.give_up()
                for entry in self.ledger.carry(self._stream):
                    self._send(partial(FrameworkCalled, seq=entry.seq, call=entry.call))
            case to.Offered():
                self.offers[message.offer_id] = (message, self.clock.now() + message.lease_s)
                think_s = self.random.choice((0.001, 0.01, 0.05, 1.0))
                offer_id = message.offer_id
                self.later(think_s, lambda: self._answer(offer_id))
            case to.Rescinded(offer_id):
                self.offers.pop(offer_id, None)
            case Verdict(seq):
                answered = self.ledger.close(seq)
                if answered is not None:
                    self._on_answered(answered.call, message)
            case to.Updated(statuses) | to.Placed(_, statuses):
                self.queue.extend(statuses)
            case to.MessageArrived(task_id, _, data):
                self.judge.messages.on_arrived(data, (self.framework_id, task_id))

    def _on_answered(self, call: calls.Call, verdict: Verdict) -> None:
        match call:
            case calls.Accept() | calls.Submit():
                self.endless -= {each.task_id for each in verdict.tasks if each.error is not None}
            case calls.Kill(task_id):
                # A task that the master does not know needs no kill.
                self.killed.add(task_id)
            case calls.Teardown():
                self._begin_anew()

    def _begin_anew(self) -> None:
        """Begin again as another framework, after this one was removed."""
        self.clock.trace(f"{self.name} was removed as {self.framework_id}")
        self.judge.on_new_identity(self)
        self.framework_id = FrameworkId("")
        # Another run may still use the old sets.
        self.endless, self.killed, self.submitted, self.held = set(), set(), set(), []
        self._lost("")
        self.life += 1
        self._begin()

    def _on_ended(self, error: CroupierError) -> None:
        if isinstance(error, Removed | NotFound):
            # Both end the program. An older store may not know the id.
            self._begin_anew()
        elif isinstance(error, FailedOver):
            self.clock.trace(f"{self.name} gives way to a newer run")
            self.is_retired = True
            self.crash(loses=False)
        else:
            self._lost(error.leader if isinstance(error, NotLeader) else "")

    # Updates.

    def _handle(self) -> None:
        if self.deaf_until > self.clock.now():
            self.wake(self.deaf_until)
            return
        while self.queue:
            status = self.queue.popleft()
            decision = self.updates.decide(status)
            if decision is UpdateDecision.SHOW:
                if status.needs_acknowledgement and self.random.random() < self.habits.fails:
                    self.updates.on_failed(status)
                    self.judge.on_failed(self, status)
                    continue
                self.judge.on_handled(self, status)
                self.updates.on_handled(status)
                if status.state.is_terminal:
                    self.ended.add(status.task_id)
                    self.endless.discard(status.task_id)
                    self.submitted.discard(status.task_id)
                    for agent in [a for a, e in self.executors.items() if e == status.task_id]:
                        del self.executors[agent]
            if decision is UpdateDecision.WITHDRAW:
                self.call(calls.Withdraw((status.task_id,)))
            elif decision is not UpdateDecision.HOLD and status.needs_acknowledgement:
                _, sequence = self._acks.get(status.task_id, ("", 0))
                self._acks[status.task_id] = (status.agent_id, max(sequence, status.sequence))
        self.updates.check()

    def _flush(self) -> None:
        if self._acks and self.ledger.has_room(internal=True):
            acks = tuple((agent, task, seq) for task, (agent, seq) in self._acks.items())
            self._acks.clear()
            self.call(calls.Acknowledge(acks), internal=True)

    # Calls.

    def _send(self, message: object) -> None:
        """Send a message that marks verdicts as seen, like each request on the wire."""
        if self._end is not None:
            self._beat()
            self._end.send(message)

    def _beat(self) -> None:
        if self._end is not None:
            self._end.send(partial(Received, verdicts_seen=self.ledger.seen))

    def call(self, call: calls.Call, internal: bool = False) -> None:
        if not self.ledger.has_room(internal):
            return
        once = isinstance(call, calls.SendMessage)
        entry = self.ledger.open(call, internal=internal, once=once)
        self.judge.on_called(self, entry.seq, call)
        self.ledger.check()
        if self.is_subscribed:
            entry.stream = self._stream
            self._send(partial(FrameworkCalled, seq=entry.seq, call=call))

    def _answer(self, offer_id: OfferId) -> None:
        """Accept or decline an offer."""
        offered, until = self.offers.pop(offer_id, (None, 0.0))
        if offered is None or until <= self.clock.now() or not self.is_subscribed:
            return
        left = self.habits.tasks - self.named
        if left <= 0 or not self.is_launching:
            self.call(calls.Decline((offer_id,), self.random.choice((5.0, 30.0))))
            return
        if self.random.random() < 0.1:
            self.call(calls.Decline((offer_id,), self.random.choice((None, 0.0, 2.0))))
            return
        tasks = self._workload.chosen(offered, left)
        if tasks:
            refuse_s = self.random.choice((None, 0.0, 1.0))
            accept = self._workload.with_hold(calls.Accept((offer_id,), tasks, refuse_s), offered)
            self.call(self._workload.with_volumes(accept, offered))
        else:
            self.call(calls.Decline((offer_id,), 1.0))

    @property
    def may_submit(self) -> bool:
        """Whether it still asks for tasks, and does not wait for many answers."""
        return self.is_subscribed and self.is_launching and len(self.ledger) < 50

    def new_id(self, kind: str = "") -> TaskId:
        """Name a new task."""
        self.named += 1
        task_id = TaskId(f"f{self.name.partition('-')[2]}.{self.life}.{kind}{self.named}")
        self.mine.append(task_id)
        return task_id

    def withdraw(self, task_ids: tuple[TaskId, ...]) -> None:
        if self.is_up and self.is_subscribed and len(self.ledger) < 50:
            self.call(calls.Withdraw(task_ids))

    def kill(self, task_id: TaskId) -> None:
        """Kill a task, unless it is known to have ended."""
        if task_id not in self.ended:
            self.call(calls.Kill(task_id, self.random.choice((None, 0, 500))))

    def end_endless(self) -> None:
        """Kill each endless task once."""
        if not self.is_up:
            return
        asked = {e.call.task_id for e in self.ledger.open_calls() if isinstance(e.call, calls.Kill)}
        for task_id in sorted(self.endless - self.killed - asked):
            self.kill(task_id)

    def tear_down(self) -> None:
        self.call(calls.Teardown())

    def _reconcile(self) -> None:
        if self.is_subscribed and len(self.ledger) < 50:
            self.call(calls.Reconcile(()))
        self.later(self.habits.reconciles_s, self._reconcile)

    def ask_all(self) -> list[TaskId]:
        """Reconcile all tasks that this run of the program has named, and return them."""
        if not self.is_up or not self.mine:
            return []
        self.call(calls.Reconcile(tuple(self.mine)))
        return list(self.mine)

    def settle(self) -> None:
        """Accept no more offers."""
        if not self.is_up:
            return
        self.is_launching, self.deaf_until = False, 0.0
        self.call(calls.Suppress(()))
        if self.held:
            self.call(calls.Release(tuple(self.held)))
        if self.submitted:
            # There may be no agent for them any more.
            self.call(calls.Withdraw(tuple(sorted(self.submitted))))
        self.wake(self.clock.now())

    def ask_for_offers(self) -> None:
        """Clear the filters; the offers that follow are declined for 5 s or longer."""
        self.call(calls.Revive(()))

    def submit_one(self) -> TaskId:
        """Submit a small task."""
        task = self._workload.task(Resources.parse(SUBMITTED_SIZES[0]))
        self.submitted.add(task.task_id)
        self.call(calls.Submit((task,)))
        return task.task_id

    @property
    def is_waiting_for(self) -> list[str]:
        """The reasons why it is not settled, in words."""
        waits = [f"call {e.seq} {calls.call_name(e.call)}" for e in self.ledger.open_calls()]
        return waits + [f"update of {s.task_id}" for s in self.queue]
