"""A framework that journals every step: a program for the chaos suite.

    python -m tests.chaos.real.workload FOLDER NAME MASTERS SEED MOST

It runs up to MOST tasks while FOLDER/control says `run`, starts no more while that says `drain`,
releases its holds too on `release`, and ends with its tasks on `stop`. FOLDER/NAME.journal records
its calls, the verdicts and the updates; the tasks write to FOLDER/ran. It may be killed and
restarted at any moment: the journal holds what it had begun, and RECONCILE answers for calls in
flight. A framework whose name ends with an odd digit also submits tasks. Many of these are brief
and alike, so agents get some lined up; others are gangs, run again when they are preempted, or have
devices. Some tasks are executors: calls run in them, and messages
are sent to them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from croupier.sdk import (
    CroupierError,
    DeviceRequest,
    ExecutorSpec,
    Framework,
    Gang,
    Message,
    NotFound,
    Offer,
    Resources,
    Task,
    TaskState,
    TaskVerdict,
    VolumeMount,
)
from croupier.sdk import TaskStatus as Status
from tests.chaos.real.hold_keeper import HoldKeeper
from tests.chaos.real.journal import (
    Answered,
    Asked,
    Begun,
    Entry,
    HoldOffered,
    Journal,
    KillAnswered,
    KillAsked,
    MessageAsked,
    MessageHeard,
    Subscribed,
    Update,
    Void,
    read_entries,
)
from tests.chaos.real.memory import Memory, number_of
from tests.chaos.real.work import (
    AGAIN,
    BRIEF,
    CALL,
    DEVICE,
    EXECUTOR,
    FIRST,
    GANG,
    LIMIT,
    REST,
    UNIT,
    USE,
    HoldWork,
    Work,
    work_named,
    work_of,
)

ONE = Resources.parse(UNIT)
REFUSE_S = 0.3
CONTROL_S = 0.05
# The most tasks in one SUBMIT.
SUBMITTED_AT_ONCE = 5
SETTLE_S = 1.0
# Of brief tasks, queued or running.
MOST_BRIEF = 60
CALLS_AT_ONCE = 4
MOST_CALLS = 12
# Of tasks that use volumes.
MOST_USES = 6
# Of members of gangs, of tasks that are requeued, and of those with devices.
MOST_MEMBERS, MOST_AGAIN, MOST_WITH_DEVICES = 6, 8, 8
# An executor takes a second to start.
MOST_EXECUTORS = 2
TALK_S = 0.1


class Workload(Framework):
    """Launches the tasks of `work_of` in the order of their numbers."""

    def __init__(self, folder: Path, name: str, masters: str, seed: int, most: int) -> None:
        path = folder / f"{name}.journal"
        self._memory = Memory(read_entries(path))
        super().__init__(
            name=name, role=name, master=masters, demand=ONE,
            framework_id=self._memory.framework_id,
        )  # fmt: skip
        self._journal = Journal(path)
        self._folder, self._seed, self._most = folder, seed, most
        self._numbers = count(self._memory.last + 1)
        self._inherited = list(self._memory.unsettled)
        self._control = "drain"
        self._rng = random.Random(f"{seed}/{name}/{self._memory.last}")
        self._submits = name[-1:] in tuple("13579")
        self._background: set[asyncio.Task[None]] = set()
        self._killing: set[str] = set()
        self._holds = HoldKeeper(self, self._memory, self._write, seed, ONE)
        self._write(Begun(os.getpid()))

    async def serve(self) -> None:
        """Run until the control file says `stop`."""
        lasting = (self._obey(), self._settle(), self._talk(), self._holds.keep())
        helpers = [asyncio.create_task(each) for each in lasting]
        try:
            await self.run()
        finally:
            for helper in [*helpers, *self._background]:
                helper.cancel()
            await asyncio.gather(*helpers, *self._background, return_exceptions=True)
            self._journal.close()

    async def on_subscribed(self, framework_id: str) -> None:
        self._write(Subscribed(framework_id))
        for task_id in list(self._memory.open):
            work = work_named(self._seed, task_id)
            if work.kill_after_s is not None and task_id not in self._memory.killed:
                self._kill_after(work, 0 if task_id in self._memory.kills else work.kill_after_s)

    async def on_offers(self, offers: list[Offer]) -> None:
        if self._control != "run":
            await self.decline(offers, REFUSE_S)
            return
        for offer in offers:
            if offer.hold_id:
                self._write(HoldOffered(offer.hold_id))
            hold = self._hold(offer)
            chosen = [] if hold and hold.is_volume else list(self._next(offer, self._room))
            await self._launch(offer, hold, chosen)

    async def on_message(self, message: Message) -> None:
        self._write(MessageHeard(message.executor_id, int(message.data)))

    async def on_update(self, status: Status) -> None:
        key = status.task_id, status.sequence
        handled = status.sequence == 0 or key not in self._memory.handled
        self._write(entry_of(status, handled))
        task_id, state = status.task_id, status.state
        if task_id in self._inherited and task_id in self._memory.unsettled:
            if state is not TaskState.UNKNOWN:
                self._write(Answered(task_id, "", time.time()))
            elif status.decided_in_s is None:
                self._write(Void(task_id))
        work = work_named(self._seed, task_id)
        if state is TaskState.RUNNING and work.kill_after_s is not None:
            self._kill_after(work, work.kill_after_s)

    @property
    def _room(self) -> int:
        others = sum(self._living(stem) for stem in (BRIEF, CALL, USE, GANG, AGAIN, DEVICE))
        return self._most - len(self._memory.alive()) + others

    def _brief(self) -> int:
        return self._living(BRIEF)

    def _living(self, stem: str) -> int:
        return sum(stem in task_id for task_id in self._memory.alive())

    def _next(self, offer: Offer, room: int) -> Iterator[Work]:
        left = offer.resources
        if room > 1 and left >= ONE + ONE and self._rng.random() < 0.2:
            left, room = left - ONE - ONE, room - 2
            yield from self._group()
        if room > 0 and left >= ONE + ONE and self._living(EXECUTOR) < MOST_EXECUTORS:
            left, room = left - ONE - ONE, room - 1
            executor = self._work(EXECUTOR)
            yield executor
            yield from self._calls(executor.task_id)
        for executor_id, agent_id in self._memory.executors.items():
            if agent_id == offer.agent_id and left >= ONE and self._living(CALL) < MOST_CALLS:
                left -= ONE
                yield from self._calls(executor_id)
        for volume_id, agent_id in self._memory.volumes.items():
            if agent_id == offer.agent_id and left >= ONE and self._living(USE) < MOST_USES:
                left -= ONE
                yield self._work(f"{USE}{number_of(volume_id)}")
        while room > 0 and left >= ONE:
            left, room = left - ONE, room - 1
            yield work_of(self._seed, self.name, next(self._numbers))

    def _group(self) -> list[Work]:
        """Return the two tasks of a group."""
        return [self._work(stem) for stem in (FIRST, REST)]

    def _calls(self, executor_id: str) -> list[Work]:
        """Return some calls in an executor."""
        stem = f"{CALL}{number_of(executor_id)}"
        return [self._work(stem) for _ in range(CALLS_AT_ONCE)]

    def _work(self, stem: str) -> Work:
        return work_of(self._seed, self.name + stem, next(self._numbers))

    def _hold(self, offer: Offer) -> HoldWork | None:
        """Return what to hold of an offer, if anything."""
        if offer.hold_id or not self._holds.has_room or self._rng.random() > 0.3:
            return None
        return self._holds.next(offer)

    async def _launch(self, offer: Offer, hold: HoldWork | None, chosen: list[Work]) -> None:
        """Make a hold of an offer, and launch tasks on it."""
        tasks = self._asked(chosen) if chosen else []
        if hold is not None:
            self._answered(await self._holds.make(hold, offer, tasks, REFUSE_S))
        elif tasks:
            self._answered(await self.accept(offer, tasks, REFUSE_S))
        else:
            await self.decline(offer, REFUSE_S)

    async def _submit_some(self) -> None:
        """Submit a few tasks, if there may be more."""
        stems = [self.name] * min(self._room, SUBMITTED_AT_ONCE)
        if 2 * (brief := self._brief()) <= MOST_BRIEF:
            stems += [self.name + BRIEF] * (MOST_BRIEF - brief)
        for stem, most in ((AGAIN, MOST_AGAIN), (DEVICE, MOST_WITH_DEVICES)):
            if self._living(stem) < most:
                stems += [self.name + stem] * 2
        chosen = [work_of(self._seed, stem, next(self._numbers)) for stem in stems]
        if len(stems) > 1 and self._rng.random() < 0.3:
            chosen += self._group()
        for executor_id in self._memory.executors:
            if self._living(CALL) < MOST_CALLS:
                chosen += self._calls(executor_id)
        for volume_id in self._memory.volumes:
            if self._living(USE) < MOST_USES:
                chosen += [self._work(f"{USE}{number_of(volume_id)}") for _ in range(2)]
        if self._living(GANG) < MOST_MEMBERS:
            await self._submit_gang()
        if chosen:
            verdicts = await self.submit(self._asked(chosen))
            self._answered(verdicts)
            for work, verdict in zip(chosen, verdicts, strict=True):
                if work.is_brief and work.kill_after_s is not None and not verdict.error:
                    self._kill_after(work, work.kill_after_s)

    async def _submit_gang(self) -> None:
        """Submit the members of a gang."""
        size, first = self._rng.randint(2, 4), next(self._numbers)
        numbers = [first, *(next(self._numbers) for _ in range(1, size))]
        stem = f"{self.name}{GANG}{size}x{first}"
        members = [work_of(self._seed, stem, number) for number in numbers]
        spread = "host" if size == 2 and self._rng.random() < 0.5 else ""
        gang = Gang(members[0].gang, spread=spread, restarts=members[0].restarts)
        self._answered(await self.submit(self._asked(members), gang=gang))

    def _asked(self, chosen: list[Work]) -> list[Task]:
        self._write(Asked(tuple(work.task_id for work in chosen), time.time()))
        return [self._task(work) for work in chosen]

    def _task(self, work: Work) -> Task:
        if work.executor:
            return Task(
                resources=Resources.parse(work.resources),
                task_id=work.task_id,
                executor_id=work.executor,
                data=work.data,
            )
        task = Task(
            work.command(str(self._folder / "ran")),
            resources=Resources.parse(work.resources),
            task_id=work.task_id,
            limits=LIMIT if work.evades else "",
            part=work.part,
            executor=ExecutorSpec() if work.is_executor else None,
            volumes=[VolumeMount(work.volume, "data")] if work.volume else (),
            requeue=work.is_requeued,
            checkpoint_signal="SIGUSR1" if work.is_requeued else "",
            devices=DeviceRequest() if work.gpus else None,
        )
        return task.in_group(work.group) if work.group else task

    def _answered(self, verdicts: Sequence[TaskVerdict]) -> None:
        for verdict in verdicts:
            told = (
                "" if verdict.error is None else f"{type(verdict.error).__name__}: {verdict.error}"
            )
            self._write(Answered(verdict.task_id, told, time.time()))

    def _kill_after(self, work: Work, seconds: float) -> None:
        if work.task_id not in self._killing:
            self._killing.add(work.task_id)
            task = asyncio.create_task(self._kill(work, seconds))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _kill(self, work: Work, after_s: float) -> None:
        await asyncio.sleep(after_s)
        error, task_id = "", work.task_id
        try:
            if task_id in self._memory.open:
                self._write(KillAsked(task_id))
                await self._end(work)
        except NotFound as refused:
            error = str(refused)
        except CroupierError:
            return  # not answered in time, or the framework has stopped
        finally:
            self._killing.discard(task_id)
        self._write(KillAnswered(task_id, error))

    async def _end(self, work: Work) -> None:
        """Kill a task, or withdraw it, which does nothing once it was placed.

        Raises:
            NotFound: if the master knows no such task.
            CroupierError: if it did not answer.
        """
        if not work.is_withdrawn:
            await self.kill(work.task_id)
            return
        for verdict in await self.withdraw([work.task_id]):
            if isinstance(verdict.error, NotFound):
                raise verdict.error

    async def _obey(self) -> None:
        """Obey the control file."""
        while True:
            told = (self._folder / "control").read_text()
            if told != self._control and self.framework_id is not None:
                try:
                    await self._change(told)
                except CroupierError:
                    pass  # repeated in a moment
                else:
                    self._control = told
            if self._control == "run" and self._submits:
                # Without an answer the tasks stay unsettled, until updates or RECONCILE tell.
                with suppress(CroupierError):
                    await self._submit_some()
            await asyncio.sleep(CONTROL_S)

    async def _change(self, told: str) -> None:
        match told:
            case "run":
                self._holds.releases_all = False
                await self.revive()
            case "drain" | "release":
                self._control = told
                self._holds.releases_all = told == "release"
                await self.suppress()
            case "stop":
                await self.stop(teardown=True)

    async def _settle(self) -> None:
        """Reconcile the ACCEPTs of earlier runs until each is answered."""
        while True:
            await asyncio.sleep(SETTLE_S)
            asked = [task for task in self._inherited if task in self._memory.unsettled]
            if asked and self.framework_id is not None:
                try:
                    await self.reconcile(asked)
                except CroupierError:
                    continue

    async def _talk(self) -> None:
        """Send messages to the executors that run."""
        while True:
            for executor_id in list(self._memory.executors):
                number = self._memory.last_message + 1
                self._write(MessageAsked(executor_id, number))
                with suppress(CroupierError):
                    await self.send_message(executor_id, str(number).encode())
            await asyncio.sleep(TALK_S)

    def _write(self, entry: Entry) -> None:
        self._journal.write(entry)
        self._memory.take(entry)


def entry_of(status: Status, handled: bool) -> Update:
    """Return the journal entry of an update."""
    return Update(
        status.task_id, status.agent_id, status.state.name, status.sequence, status.reason.name,
        status.exit_code, status.signal, status.pid, status.message, handled,
        status.is_reconciled, time.time(),
    )  # fmt: skip


def main(argv: list[str]) -> int:
    folder, name, masters, seed, most = argv
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(Workload(Path(folder), name, masters, int(seed), int(most)).serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
