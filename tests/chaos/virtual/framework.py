"""A framework: a correct program on the SDK's ledger of calls and book of updates.

It accepts offers with tasks, declines, kills, reconciles, and handles updates at once or later.
Every second one also submits tasks and withdraws some. A crash loses everything but its id, the
number of tasks that it has named, and its endless, killed and submitted tasks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from croupier.master.core import calls
from croupier.master.core.events import FrameworkCalled, Received, Subscribe
from croupier.master.core.messages import Offered, Placed, Rescinded, Subscribed, Updated
from croupier.master.core.settings import Settings
from croupier.model.demand import Placement
from croupier.model.errors import CroupierError, FailedOver, NotFound, NotLeader, Removed
from croupier.model.executor import ExecutorSpec
from croupier.model.ids import AgentId, FrameworkId, HoldId, OfferId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo, TaskStatus
from croupier.model.task_group import GroupPart, TaskGroup
from croupier.model.verdict import Verdict
from croupier.net.backoff import Backoff
from croupier.sdk.core.calls import CallLedger
from croupier.sdk.core.updates import UpdateBook, UpdateDecision
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.network import End, Ended, Network
from tests.chaos.virtual.process import Process
from tests.chaos.virtual.variety import Habits

if TYPE_CHECKING:
    from tests.chaos.virtual.judge import Judge

SUBSCRIBE_TIMEOUT_S = 6.0
# A task that runs until it is killed.
FOR_EVER_S = 1e9
# Times to complete; 0 for no limit.
MOST_MS = (0, 0, 0, 0, 0, 2_000, 9_000)
# Bursts of short tasks that a framework submits.
MOST_BURSTS = 4
# Of executors, and of tasks in them.
SMALL = "cpus:0.2;mem:20"
SUBMITTED_SIZES = ("cpus:1;mem:100", "cpus:2;mem:100", "cpus:1;mem:300;ports:1")
SIZES = ("cpus:1;mem:100", "cpus:2;mem:100", "cpus:1;mem:300;ports:[1-2]")


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
        self.settings, self.masters, self.habits, self.judge = (
            settings,
            masters,
            habits,
            judge,
        )
        self.framework_id = FrameworkId("")
        self.named = 0
        self.is_launching = True
        self.deaf_until = 0.0
        self.endless: set[TaskId] = set()
        self.killed: set[TaskId] = set()
        self.submitted: set[TaskId] = set()
        # Random numbers of their own, so that seeds find the same mutants as before.
        self._submitting = Random(crc32(f"{seed}/{name}/submit".encode()))
        self._submits = self._submitting.random() < 0.5
        self._bursting = Random(crc32(f"{seed}/{name}/burst".encode()))
        self._bursts = MOST_BURSTS if self._bursting.random() < 0.7 else 0
        self._grouping = Random(crc32(f"{seed}/{name}/group".encode()))
        self._groups = self._grouping.random() < 0.3
        self._executing = Random(crc32(f"{seed}/{name}/executor".encode()))
        self._has_executors = self._executing.random() < 0.6
        self._holding = Random(crc32(f"{seed}/{name}/hold".encode()))
        self._holds = self._holding.random() < 0.3
        self.held: list[HoldId] = []
        self._forget()

    def _forget(self) -> None:
        """Reset everything that a crash loses."""
        self.ledger: CallLedger[calls.Call] = CallLedger(512)
        self.updates = UpdateBook()
        self.queue: deque[TaskStatus] = deque()
        self.ended: set[TaskId] = set()
        self.mine: list[TaskId] = []
        self.offers: dict[OfferId, tuple[Offered, float]] = {}
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
        self._forget()
        self._connect(self.random.choice(self.masters))
        if self.habits.reconciles_s:
            self.later(self.habits.reconciles_s, self._reconcile)
        if self._submits:
            self.later(1.0, self._submit)
        self.later(1.5, self._burst)
        if self._groups:
            self.later(0.7, self._group)

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
            case Subscribed(framework_id):
                self.framework_id = framework_id
                self.is_subscribed = True
                self._hops = 0
                self._backoff.reset()
                for entry in self.ledger.carry(self._stream):
                    self._send(partial(FrameworkCalled, seq=entry.seq, call=entry.call))
            case Offered():
                self.offers[message.offer_id] = (message, self.clock.now() + message.lease_s)
                think_s = self.random.choice((0.001, 0.01, 0.05, 1.0))
                offer_id = message.offer_id
                self.later(think_s, lambda: self._answer(offer_id))
            case Rescinded(offer_id):
                self.offers.pop(offer_id, None)
            case Verdict(seq):
                answered = self.ledger.close(seq)
                if answered is not None:
                    self._on_answered(answered.call, message)
            case Updated(statuses) | Placed(_, statuses):
                self.queue.extend(statuses)

    def _on_answered(self, call: calls.Call, verdict: Verdict) -> None:
        match call:
            case calls.Accept() | calls.Submit():
                self.endless -= {each.task_id for each in verdict.tasks if each.error is not None}
            case calls.Kill(task_id):
                # A task that the master does not know needs no kill.
                self.killed.add(task_id)
            case calls.Teardown():
                self._begin_anew()
            case _:
                pass

    def _begin_anew(self) -> None:
        """Begin again as another framework, after this one was removed."""
        self.clock.trace(f"{self.name} was removed as {self.framework_id}")
        self.judge.on_new_identity(self)
        self.framework_id = FrameworkId("")
        # Another run may still use the old sets.
        self.endless, self.killed, self.submitted, self.held = set(), set(), set(), []
        self._lost("")
        self.life += 1
        self._forget()
        self._connect(self.random.choice(self.masters))
        if self.habits.reconciles_s:
            self.later(self.habits.reconciles_s, self._reconcile)
        if self._submits:
            self.later(1.0, self._submit)

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
                    self.executors = {
                        agent: each
                        for agent, each in self.executors.items()
                        if each != status.task_id
                    }
            if decision is UpdateDecision.WITHDRAW:
                self._call(calls.Withdraw((status.task_id,)))
            elif decision is not UpdateDecision.HOLD and status.needs_acknowledgement:
                _, sequence = self._acks.get(status.task_id, ("", 0))
                self._acks[status.task_id] = (status.agent_id, max(sequence, status.sequence))
        self.updates.check()

    def _flush(self) -> None:
        if self._acks and self.ledger.has_room(internal=True):
            acks = tuple((agent, task, seq) for task, (agent, seq) in self._acks.items())
            self._acks.clear()
            self._call(calls.Acknowledge(acks), internal=True)

    # Calls.

    def _send(self, message: object) -> None:
        """Send a message that marks verdicts as seen, like each request on the wire."""
        if self._end is not None:
            self._beat()
            self._end.send(message)

    def _beat(self) -> None:
        if self._end is not None:
            self._end.send(partial(Received, verdicts_seen=self.ledger.seen))

    def _call(self, call: calls.Call, internal: bool = False) -> None:
        if not self.ledger.has_room(internal):
            return
        entry = self.ledger.open(call, internal=internal)
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
            self._call(calls.Decline((offer_id,), self.random.choice((5.0, 30.0))))
            return
        if self.random.random() < 0.1:
            self._call(calls.Decline((offer_id,), self.random.choice((None, 0.0, 2.0))))
            return
        room, first = offered.resources, list[TaskInfo]()
        if self._has_executors and self._executing.random() < 0.5:
            first = self._in_executor(offered)
            for task in first:
                room = room - task.resources
        tasks = (*first, *self._tasks(room, self.random.randint(1, min(left, 4))))
        if tasks:
            # A task in an executor is in no group.
            if self._groups and self._grouping.random() < 0.3 and not first:
                tasks = self._grouped(tasks)
            refuse_s = self.random.choice((None, 0.0, 1.0))
            self._call(self._with_hold(calls.Accept((offer_id,), tasks, refuse_s), offered))
        else:
            self._call(calls.Decline((offer_id,), 1.0))

    def _with_hold(self, accept: calls.Accept, offered: Offered) -> calls.Accept:
        """Return the call, at times with a hold, or with the release of an earlier one."""
        random = self._holding
        if not self._holds or random.random() < 0.5:
            return accept
        if self.held and (offered.hold_id or random.random() < 0.3):
            return replace(accept, releases=(self.held.pop(random.randrange(len(self.held))),))
        hold_id = HoldId(f"{accept.tasks[0].task_id}.hold")
        ttl_ms = random.choice((0, 700, 5_000, 20_000))
        size = Resources.parse(random.choice(SIZES[:2]))
        self.held.append(hold_id)
        hold = calls.MakeHold(hold_id, size, ttl_ms, for_role=random.random() < 0.4)
        return replace(accept, holds=(hold,))

    def _tasks(self, room: Resources, most: int) -> tuple[TaskInfo, ...]:
        tasks = []
        for _ in range(most):
            size = Resources.parse(self.random.choice(SIZES))
            if not size <= room:
                continue
            room = room - size
            tasks.append(self._task(size))
        return tuple(tasks)

    def _in_executor(self, offered: Offered) -> list[TaskInfo]:
        """Return tasks in an executor on the offer's agent, and the executor if there is none."""
        random, room = self._executing, offered.resources
        size = Resources.parse(SMALL)
        agent_id = offered.agent.agent_id
        tasks: list[TaskInfo] = []
        executor = self.executors.get(agent_id, TaskId(""))
        for _ in range(random.randint(1, 5)):
            if not size <= room or self.named >= self.habits.tasks:
                break
            room = room - size
            self.named += 1
            task_id = TaskId(f"f{self.name.partition('-')[2]}.{self.life}.x{self.named}")
            self.mine.append(task_id)
            grace_ms = random.choice((0, 200, 3000))
            heeds = 0 if random.random() < 0.1 else 1
            if not executor or random.random() < 0.05:
                executor = self.executors[agent_id] = task_id
                lasts = random.choice((3.0, 20.0, FOR_EVER_S, FOR_EVER_S))
                command = Command(shell=f"{lasts} {random.choice((0, 1))} {heeds}")
                data = b"silent" if random.random() < 0.1 else b""
                spec = ExecutorSpec(3_000, 500)
                task = TaskInfo(task_id, command, size, grace_ms=grace_ms, executor=spec, data=data)
            else:
                lasts = random.choice((0.0, 0.05, 0.5, 3.0, FOR_EVER_S))
                data = f"{lasts} {random.choice((0, 0, 1))} {heeds}".encode()
                most_ms = random.choice(MOST_MS)
                task = TaskInfo(
                    task_id, Command(), size, grace_ms=grace_ms, max_completion_ms=most_ms,
                    executor_id=executor, data=data,
                )  # fmt: skip
            if lasts == FOR_EVER_S:
                self.endless.add(task_id)
            if random.random() < 0.1:
                self.later(random.uniform(0.0, 10.0), partial(self.kill, task_id))
            tasks.append(task)
        return tasks

    def _submit(self) -> None:
        """Submit some tasks, and withdraw others at times; then wait."""
        random, most = self._submitting, self.habits.tasks - self.named
        if self.is_subscribed and self.is_launching and len(self.ledger) < 50:
            number = min(random.randint(0, 4), most)
            size = Resources.parse(random.choice(SUBMITTED_SIZES))
            tasks = tuple(self._task(size) for _ in range(number))
            if tasks:
                self.submitted |= {task.task_id for task in tasks}
                bound = random.choice((None, None, 1))
                self._call(calls.Submit(tasks, placement=Placement(max_per_agent=bound)))
            if self.submitted and random.random() < 0.2:
                self._call(calls.Withdraw((random.choice(sorted(self.submitted)),)))
        self.later(random.uniform(0.5, 5.0), self._submit)

    def _burst(self) -> None:
        """Submit many short tasks of one shape, to be lined up; withdraw or kill some."""
        random = self._bursting
        if self._bursts and self.is_subscribed and self.is_launching and len(self.ledger) < 50:
            self._bursts -= 1
            size = Resources.parse(random.choice(SUBMITTED_SIZES[:2]))
            lasts = random.choice((0.02, 0.1, 0.4))
            tasks = []
            for _ in range(random.randint(8, 24)):
                self.named += 1
                task_id = TaskId(f"f{self.name.partition('-')[2]}.{self.life}.b{self.named}")
                self.mine.append(task_id)
                command = Command(shell=f"{lasts * random.uniform(0.5, 1.5):.3f} 0 1")
                tasks.append(TaskInfo(task_id, command, size, grace_ms=200))
            self.submitted |= {task.task_id for task in tasks}
            self._call(calls.Submit(tuple(tasks)))
            if random.random() < 0.5:
                chosen = random.choice(tasks).task_id
                self.later(random.uniform(0.0, 1.0), lambda: self.kill(chosen))
            if random.random() < 0.5:
                named = tuple(task.task_id for task in random.sample(tasks, 3))
                self.later(random.uniform(0.0, 1.0), lambda: self._withdraw(named))
        if self._bursts:
            self.later(random.uniform(0.5, 4.0), self._burst)

    def _group(self) -> None:
        """Submit a group, at times with a task that is refused; kill or withdraw one of it."""
        random = self._grouping
        if self.is_subscribed and self.is_launching and len(self.ledger) < 50:
            tasks = []
            for _ in range(random.randint(1, 4)):
                self.named += 1
                task_id = TaskId(f"f{self.name.partition('-')[2]}.{self.life}.g{self.named}")
                self.mine.append(task_id)
                size = Resources.parse(random.choice(SUBMITTED_SIZES))
                lasts = random.choice((0.0, 0.1, 1.0, 8.0)) * random.uniform(0.5, 1.5)
                if random.random() < 0.2:
                    lasts = FOR_EVER_S
                    self.endless.add(task_id)
                code, heeds = random.choice((0, 0, 1)), random.choice((1, 1, 0))
                command = Command(shell=f"{lasts:.3f} {code} {heeds}")
                tasks.append(TaskInfo(task_id, command, size, grace_ms=200))
            chosen = random.choice(tasks).task_id
            self.submitted |= {task.task_id for task in tasks}
            self._call(calls.Submit(self._grouped(tuple(tasks))))
            if random.random() < 0.3:
                self.later(random.uniform(0.0, 3.0), lambda: self.kill(chosen))
            elif random.random() < 0.2:
                self.later(random.uniform(0.0, 1.0), lambda: self._withdraw((chosen,)))
        self.later(random.uniform(1.0, 6.0), self._group)

    def _grouped(self, tasks: tuple[TaskInfo, ...]) -> tuple[TaskInfo, ...]:
        """Return the tasks as one group; at times one of them fits no agent."""
        random, group_id = self._grouping, f"{tasks[0].task_id}.group"
        parts = random.choices((GroupPart.MEMBER, GroupPart.SIDECAR), (3, 1), k=len(tasks))
        parts[random.randrange(len(tasks))] = random.choice((GroupPart.MEMBER, GroupPart.LEADER))
        grouped = [
            replace(task, group=TaskGroup(group_id, part))
            for task, part in zip(tasks, parts, strict=True)
        ]
        if random.random() < 0.2:
            at = random.randrange(len(grouped))
            bad = grouped[at].resources + Resources(ranges={"lots": ((1, 9),)})
            grouped[at] = replace(grouped[at], resources=bad)
        return tuple(grouped)

    def _withdraw(self, task_ids: tuple[TaskId, ...]) -> None:
        if self.is_up and self.is_subscribed and len(self.ledger) < 50:
            self._call(calls.Withdraw(task_ids))

    def _task(self, size: Resources) -> TaskInfo:
        self.named += 1
        task_id = TaskId(f"f{self.name.partition('-')[2]}.{self.life}.{self.named}")
        self.mine.append(task_id)
        habits, random = self.habits, self.random
        lasts = random.choice((0.0, 0.05, 0.5, 3.0, 10.0, 25.0)) * random.uniform(0.5, 1.5)
        if random.random() < habits.endless:
            lasts = FOR_EVER_S
            self.endless.add(task_id)
        code = random.choice((0, 0, 0, 1, 7))
        heeds = 0 if random.random() < habits.stubborn else 1
        if random.random() < habits.kills:
            self.later(random.uniform(0.0, 15.0), lambda: self.kill(task_id))
        command = Command(shell=f"{lasts:.3f} {code} {heeds}")
        grace_ms = random.choice((0, 200, 3000))
        # Not drawn, so that seeds find the same mutants as before.
        most_ms = MOST_MS[crc32(task_id.encode()) % len(MOST_MS)]
        return TaskInfo(task_id, command, size, grace_ms=grace_ms, max_completion_ms=most_ms)

    def kill(self, task_id: TaskId) -> None:
        """Kill a task, unless it is known to have ended."""
        if task_id not in self.ended:
            self._call(calls.Kill(task_id, self.random.choice((None, 0, 500))))

    def end_endless(self) -> None:
        """Kill each endless task once."""
        if not self.is_up:
            return
        asked = {e.call.task_id for e in self.ledger.open_calls() if isinstance(e.call, calls.Kill)}
        for task_id in sorted(self.endless - self.killed - asked):
            self.kill(task_id)

    def tear_down(self) -> None:
        self._call(calls.Teardown())

    def _reconcile(self) -> None:
        if self.is_subscribed and len(self.ledger) < 50:
            self._call(calls.Reconcile(()))
        self.later(self.habits.reconciles_s, self._reconcile)

    def ask_all(self) -> list[TaskId]:
        """Reconcile all tasks that this run of the program has named, and return them."""
        if not self.is_up or not self.mine:
            return []
        self._call(calls.Reconcile(tuple(self.mine)))
        return list(self.mine)

    def settle(self) -> None:
        """Accept no more offers."""
        if not self.is_up:
            return
        self.is_launching = False
        self.deaf_until = 0.0
        self._call(calls.Suppress(()))
        if self.held:
            self._call(calls.Release(tuple(self.held)))
        if self.submitted:
            # There may be no agent for them any more.
            self._call(calls.Withdraw(tuple(sorted(self.submitted))))
        self.wake(self.clock.now())

    def ask_for_offers(self) -> None:
        """Clear the filters; the offers that follow are declined for 5 s or longer."""
        self._call(calls.Revive(()))

    def submit_one(self) -> TaskId:
        """Submit a small task."""
        task = self._task(Resources.parse(SUBMITTED_SIZES[0]))
        self.submitted.add(task.task_id)
        self._call(calls.Submit((task,)))
        return task.task_id

    @property
    def is_waiting_for(self) -> list[str]:
        """The reasons why it is not settled, in words."""
        waits = [f"call {e.seq} {calls.call_name(e.call)}" for e in self.ledger.open_calls()]
        return waits + [f"update of {s.task_id}" for s in self.queue]
