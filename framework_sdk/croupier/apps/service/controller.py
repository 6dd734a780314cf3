"""The framework of a service: performs what the core decides.

Rule: an instance is stored before it is launched. The end of one need not be stored before it is
acknowledged: a restart continues under the same framework id, asks the master for the state of
every instance, and decides again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from croupier.apps.controller.engine import Engine
from croupier.apps.controller.outcomes import Outcome
from croupier.apps.service.core import events
from croupier.apps.service.core.decide import decide, resume
from croupier.apps.service.core.instance import Instance
from croupier.apps.service.core.placement import place
from croupier.apps.service.core.state import Service
from croupier.apps.service.health_checks import probe
from croupier.apps.service.state_dir import StateDir
from croupier.apps.service.status import Journal
from croupier.apps.service.template import Demands
from croupier.cli.flags import Target
from croupier.sdk import (
    CroupierError,
    Demand,
    InvalidRequest,
    Offer,
    PreemptRequest,
    TaskStatus,
    Unavailable,
)

# The instances keep running for this long without a controller.
FAILOVER_S: Final = 7 * 24 * 3600.0
# Between two turns while something changes, and while nothing does.
TICK_S: Final = 0.2
IDLE_S: Final = 1.0
MAX_PROBES: Final = 64
SAVE_AGAIN_S: Final = 2.0
# Silence after which the connection is tested; and time for the test.
QUIET_S: Final = 5.0
# A state that an update should have told by now is asked for.
ASK_AGAIN_S: Final = 20.0
# Time for the statuses of the instances after the master was asked, and of those that another
# controller has left.
SYNC_S: Final = 0.5
ADOPT_S: Final = 3.0
_REFUSE_S: Final = 1.0


class Controller(Engine):
    """Runs one service. `over` is done when it was stopped, or has been asked to end.

    Attributes:
        service: the service; `turn` after a change.
        is_stopped: whether all instances of a stopped service have ended.
    """

    def __init__(
        self,
        service: Service,
        directory: StateDir,
        journal: Journal,
        target: Target,
        *,
        adopts: bool = False,
    ) -> None:
        """Continue the service; with `adopts`, wait for instances it does not know."""
        self.service, self._directory, self._journal = service, directory, journal
        self._adopts = adopts
        self._demands = Demands(service)
        super().__init__(
            target,
            framework_name(service.name),
            service.role,
            framework_id=service.framework_id,
            keep_s=FAILOVER_S,
            demands=[self._demands.of(service.target, 0, ())],
        )
        self._epoch = time.time() - time.monotonic()
        self._saving = asyncio.Lock()
        self._probes = asyncio.Semaphore(MAX_PROBES)
        self._demanded: list[Demand] | None = None
        self._launching = 0
        # The calls that are under way.
        self._calling: asyncio.Task[None] | None = None
        # Something has happened: the next turn is due.
        self._changed = asyncio.Event()
        self._contact_at = self._asked_at = self.now()
        self._is_synced = self.is_stopped = False
        resume(self.service, self.now())
        # Nothing is launched or updated before the master has told which instances run.
        self.service.hold_until = float("inf")

    def now(self) -> float:
        """Return seconds since the epoch that never go back while this process runs."""
        return self._epoch + time.monotonic()

    # The policy.

    def on_known(self, framework_id: str) -> None:
        """Keep the id, and ask for the state of all instances."""
        self._contact()
        self.service.framework_id = framework_id
        self._demanded, self._is_synced = None, False
        # What has ended makes room for others.
        self.ask_about(self.service.instances)
        self._changed.set()

    def is_open(self, task_id: str) -> bool:
        """Return whether this is an instance."""
        return task_id in self.service.instances

    def on_live(self, status: TaskStatus) -> None:
        """Apply the state of an instance."""
        self._contact()
        events.on_live(self.service, status, self.now())
        self._changed.set()

    def on_unknown_task(self, status: TaskStatus) -> None:
        """Adopt an instance that another controller of this service has launched."""
        self.on_live(status)

    def on_end(self, status: TaskStatus, _: Outcome, error: CroupierError | None) -> None:
        """Apply the end of an instance, or that its launch was refused."""
        self._contact()
        if error is None:
            events.on_end(self.service, status, self.now())
        else:
            is_fault = isinstance(error, InvalidRequest)
            events.on_refused(
                self.service, status.task_id, str(error), self.now(), is_fault=is_fault
            )
        self._changed.set()

    def on_kill_refused(self, task_id: str, error: CroupierError) -> None:
        """Report it to the core, which sends the kill again."""
        self._journal.write(f"cannot end {task_id}: {error}")

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch instances on the offers, and decline the rest."""
        self._contact()
        rooms = [self._demands.room(offer) for offer in offers]
        templates = {number: self._demands.template(number) for number in self.service.versions}
        placed = place(self.service, rooms, templates, self.now())
        if placed:
            await self._save()
        # The master counts the demand down with each launch.
        self._launching += 1
        try:
            launches = []
            for offer in offers:
                tasks = [t for each in placed.get(offer.id, ()) for t in self._demands.tasks(*each)]
                launches.append(self.launch(offer, tasks, _REFUSE_S))
            await asyncio.gather(*launches)
        finally:
            self._launching -= 1
            self._demanded = None

    async def on_preempt(self, request: PreemptRequest) -> None:
        """End the instances gracefully."""
        events.on_preempt(self.service, tuple(request.task_ids))
        self._changed.set()

    # The turn.

    async def tick(self) -> None:
        """Decide repeatedly, until the service has ended."""
        while not self.over.done():
            self._changed.clear()
            await self.turn()
            await asyncio.sleep(TICK_S)
            if self._is_idle():
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S - TICK_S):
                        await self._changed.wait()

    def save_last(self) -> None:
        """Save the state at the end of this controller."""
        with suppress(Unavailable):
            self._directory.save(self.service)
        self._tell_news()

    async def turn(self) -> None:
        """Decide once, make that durable, and perform it."""
        service, now = self.service, self.now()
        is_connected = self.was_subscribed and now - self._contact_at < 2 * QUIET_S
        kills = decide(service, now, is_connected=is_connected)
        await self._save()
        self._tell_news()
        for task_id in kills:
            self.end_task(task_id)
        for instance in service.instances.values():
            if instance.is_check_due(service.health_of(instance), now):
                instance.is_checking = True
                self.own(self._check(instance))
        if not self.was_subscribed:
            return
        if self._calling is None or self._calling.done():
            self._calling = self.own(self._call_master())
        self._ask_for_overdue(now)
        instances = service.instances.values()
        # The teardown ends those that cannot be reached.
        if service.is_stopping and all(each.unreachable_since is not None for each in instances):
            self.is_stopped = True
            self.finish()

    def _is_idle(self) -> bool:
        """Return whether the next turn has time: nothing changes, and no check is due soon."""
        service = self.service
        return (
            self._is_synced
            and service.rollout.state.is_over
            and not (service.is_stopping or service.news)
            and not any(slot.down_since is not None for slot in service.slots.values())
            and not any(each.is_stopping for each in service.instances.values())
            and all(each.health.interval_s >= IDLE_S for each in service.versions.values())
        )

    async def _save(self) -> None:
        """Make the state durable; wait, and say so once, while the disk is full."""
        async with self._saving:
            has_failed = False
            while True:
                try:
                    self._directory.save(self.service)
                except Unavailable as error:
                    if not has_failed:
                        self._journal.write(f"{error}; nothing is launched until that works")
                    has_failed = True
                    await asyncio.sleep(SAVE_AGAIN_S)
                else:
                    if has_failed:
                        self._journal.write("the state is written again")
                    return

    def _tell_news(self) -> None:
        news, self.service.news = self.service.news, []
        for line in news:
            self._journal.write(line)

    # Work.

    async def _check(self, instance: Instance) -> None:
        health = self.service.health_of(instance)
        async with self._probes:
            if health.port < len(instance.ports):
                passed, text = await probe(health, instance.host, instance.ports[health.port])
            else:
                passed, text = False, "the instance has no such port"
        events.on_check(self.service, instance.task_id, passed=passed, text=text, now=self.now())

    async def _call_master(self) -> None:
        """Ask for instances that this state does not know, and for offers.

        The next turn repeats a failed call.
        """
        with suppress(Unavailable):
            if not self._is_synced:
                await self.reconcile()
                self._contact()
                self._is_synced = True
                if self.service.hold_until == float("inf"):
                    self.service.hold_until = self.now() + (ADOPT_S if self._adopts else SYNC_S)
            await self._send_demand()

    async def _send_demand(self) -> None:
        """Ask for what is lacking; offers of nothing else are made."""
        wanted = self._demands.wanted(self.now())
        if self._launching or wanted == self._demanded:
            return
        self._demanded = wanted
        try:
            await self.demands(wanted)
        except Unavailable:
            self._demanded = None
            raise
        except CroupierError as error:
            self._journal.write(f"the master refuses the demand: {error}")
        self._contact()

    def _ask_for_overdue(self, now: float) -> None:
        """Ask for states that are overdue, and test a silent connection during an update."""
        service = self.service
        if now - self._asked_at < QUIET_S:
            return
        overdue = [
            each.task_id
            for each in service.instances.values()
            if (each.running_since is None and now - each.launched_at > ASK_AGAIN_S)
            or (each.is_stopping and each.killed_at is not None and now > each.killed_at + 5)
        ]
        is_quiet = now - self._contact_at >= QUIET_S and not service.rollout.state.is_over
        if is_quiet and not overdue:
            overdue = list(service.instances)[:1]
        if overdue:
            self._asked_at = now
            self.ask_about(overdue)

    def _contact(self) -> None:
        self._contact_at = self.now()


def framework_name(service: str) -> str:
    """Return the name under which the framework of a service is listed."""
    return f"service-{service}"
