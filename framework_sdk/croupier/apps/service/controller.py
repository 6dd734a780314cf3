"""The framework of a service: it performs what the core decides.

Rule: an instance is durable before it is launched. A restart continues under the same framework
id, asks the master for the state of every instance that it knows, and decides again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from croupier.apps.service.core import events
from croupier.apps.service.core.decide import decide, resume
from croupier.apps.service.core.instance import Instance
from croupier.apps.service.core.placement import Placed, place
from croupier.apps.service.core.state import Service
from croupier.apps.service.demands import Demands
from croupier.apps.service.journal import Journal
from croupier.apps.service.probes import probe
from croupier.apps.service.state_dir import Saved, StateDir
from croupier.apps.service.works import Works
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.sdk import (
    Credentials,
    CroupierError,
    Demand,
    Framework,
    NotFound,
    Offer,
    PreemptRequest,
    TaskStatus,
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


class Controller(Framework):
    """Runs one service. `over` is done when it was stopped, or has been asked to end."""

    def __init__(
        self,
        saved: Saved,
        directory: StateDir,
        journal: Journal,
        master: str,
        credentials: Callable[[], Credentials] | None = None,
        *,
        adopts: bool = False,
    ) -> None:
        """Continue the service in `saved`; with `adopts`, wait for instances it does not know."""
        self._saved, self._directory, self._journal = saved, directory, journal
        self._service, self._adopts = saved.service, adopts
        self._demands = Demands(saved.service)
        super().__init__(
            name=framework_name(saved.service.name),
            role=saved.role,
            master=master,
            framework_id=saved.framework_id or None,
            failover_timeout_s=FAILOVER_S,
            demands=[self._demands.of(saved.service.target, 0, ())],
            credentials=credentials,
        )
        self._epoch = time.time() - time.monotonic()
        self._saving = asyncio.Lock()
        self._probes = asyncio.Semaphore(MAX_PROBES)
        self._demanded: list[Demand] | None = None
        self._launching = 0
        # Something has happened: the next turn is due.
        self._woken = asyncio.Event()
        self._contact_at = self._asked_at = self._now()
        self.is_subscribed = self._is_synced = False
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._works = Works(self.over)
        resume(self._service, self._now())
        # Nothing is launched or updated before the master has told which instances run.
        self._service.hold_until = float("inf")

    # What commands use.

    @property
    def service(self) -> Service:
        """The service; `wake` after a change."""
        return self._service

    def wake(self) -> None:
        """Make the next turn due."""
        self._woken.set()

    def release(self) -> None:
        """End this controller; the instances keep running."""
        self._finish(stopped=False)

    @property
    def is_ready(self) -> bool:
        """Whether it knows the state of its instances, and launches more."""
        return self._is_synced and self._now() >= self._service.hold_until

    @property
    def saved(self) -> Saved:
        """The state."""
        return self._saved

    def now(self) -> float:
        """Return the time of the service's state, in seconds since the epoch."""
        return self._now()

    # What the SDK calls.

    async def on_subscribed(self, framework_id: str) -> None:
        """Keep the id, and ask for the state of all instances."""
        self._contact()
        self._saved.framework_id = framework_id
        await self._save()
        self._demanded = None
        self.is_subscribed, self._is_synced = True, False

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch instances on the offers, and decline the rest."""
        self._contact()
        rooms = [self._demands.room(offer) for offer in offers]
        needs = {
            number: self._demands.template(number).needs() for number in self._service.versions
        }
        placed = place(self._service, rooms, needs, self._now())
        if placed:
            await self._save()
        chosen: dict[str, list[Placed]] = {}
        for each in placed:
            chosen.setdefault(each.offer_id, []).append(each)
        # The master counts the demand down with each launch.
        self._launching += 1
        try:
            await asyncio.gather(*(self._launch(o, chosen.get(o.id, [])) for o in offers))
        finally:
            self._launching -= 1
            self._demanded = None

    async def on_update(self, status: TaskStatus) -> None:
        """Apply the state of a task."""
        self._contact()
        events.on_status(self._service, status, self._now())
        self._woken.set()

    async def on_preempt(self, request: PreemptRequest) -> None:
        """End the instances gracefully."""
        events.on_preempt(self._service, tuple(request.task_ids))
        self._woken.set()

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    # The turn.

    async def tick(self) -> None:
        """Decide again and again, until the service is over."""
        while not self.over.done():
            self._woken.clear()
            await self.turn()
            await asyncio.sleep(TICK_S)
            if self._is_idle():
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S - TICK_S):
                        await self._woken.wait()

    async def close(self) -> None:
        """Save the state, and end all work that is under way."""
        await self._works.close()
        with suppress(Unavailable):
            self._directory.save(self._saved)
        self._tell_news()

    async def turn(self) -> None:
        """Decide once, make that durable, and perform it."""
        service, now = self._service, self._now()
        is_connected = self.is_subscribed and now - self._contact_at < 2 * QUIET_S
        kills = decide(service, now, is_connected=is_connected)
        await self._save()
        self._tell_news()
        for task_id in kills:
            self._works.start(f"kill {task_id}", self._kill(task_id))
        for instance in service.instances.values():
            health = service.health_of(instance)
            if instance.is_check_due(health, now):
                instance.is_checking = True
                self._works.start(f"check {instance.task_id}", self._check(instance))
        if not self.is_subscribed:
            return
        if not self._is_synced:
            self._works.start("sync", self._sync())
        self._works.start("demand", self._send_demand())
        self._ask(now)
        if service.is_stopping and self._is_ended():
            self._finish(stopped=True)

    def _is_ended(self) -> bool:
        """Return whether no instance is left, or only those that the teardown will end."""
        return all(each.unreachable_since is not None for each in self._service.instances.values())

    def _is_idle(self) -> bool:
        """Return whether the next turn has time: nothing changes, and no check is due soon."""
        service = self._service
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
                    self._directory.save(self._saved)
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
        news, self._service.news = self._service.news, []
        for line in news:
            self._journal.write(line)

    # Work.

    async def _launch(self, offer: Offer, placed: list[Placed]) -> None:
        service = self._service
        tasks = []
        for each in placed:
            template = self._demands.template(each.instance.version)
            health = service.health_of(each.instance)
            tasks.append(template.task(service.name, each.instance, health, each.resources))
        ids = [task.task_id for task in tasks]
        try:
            verdicts = await self.accept(offer, tasks, refuse_s=_REFUSE_S)
        except Unavailable:
            # The tasks may run: ask the master.
            await self.reconcile(ids)
            return
        except CroupierError as error:
            self._refused(ids, error)
            return
        self._contact()
        for verdict in verdicts:
            if verdict.error is not None:
                self._refused([verdict.task_id], verdict.error)

    def _refused(self, task_ids: Iterable[str], error: CroupierError) -> None:
        is_fault = isinstance(error, InvalidRequest)
        for task_id in task_ids:
            events.on_refused(self._service, task_id, str(error), self._now(), is_fault=is_fault)

    async def _kill(self, task_id: str) -> None:
        try:
            await self.kill(task_id)
            self._contact()
        except NotFound:
            events.on_not_found(self._service, task_id)
        except Unavailable:
            return  # the core sends it again
        except CroupierError as error:
            self._journal.write(f"cannot end {task_id}: {error}")

    async def _check(self, instance: Instance) -> None:
        health = self._service.health_of(instance)
        async with self._probes:
            if health.port < len(instance.ports):
                port = instance.ports[health.port]
                passed, text = await probe(health, instance.host, port)
            else:
                passed, text = False, "the instance has no such port"
        events.on_check(self._service, instance.task_id, passed=passed, text=text, now=self._now())

    async def _sync(self) -> None:
        """Ask for the state of all instances; a failed attempt is repeated by the next turn."""
        with suppress(Unavailable):
            # First those that this state knows: what has ended makes room for others.
            await self.reconcile(list(self._service.instances))
            await self.reconcile()
            self._contact()
            self._is_synced = True
            if self._service.hold_until == float("inf"):
                wait_s = ADOPT_S if self._adopts else SYNC_S
                self._service.hold_until = self._now() + wait_s

    async def _send_demand(self) -> None:
        """Ask for what is lacking; offers of nothing else are made."""
        wanted = self._demands.wanted(self._now())
        if self._launching or wanted == self._demanded:
            return
        self._demanded = wanted
        try:
            await self.demands(wanted)
        except Unavailable:
            self._demanded = None  # the next turn tries again
            return
        except CroupierError as error:
            self._journal.write(f"the master refuses the demand: {error}")
        self._contact()

    def _ask(self, now: float) -> None:
        """Ask for states that are overdue, and test a silent connection during an update."""
        service = self._service
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
            self._works.start("ask", self._reconcile(overdue))

    async def _reconcile(self, task_ids: list[str]) -> None:
        with suppress(Unavailable):
            await self.reconcile(task_ids)
            self._contact()

    def _finish(self, *, stopped: bool) -> None:
        if not self.over.done():
            self.over.set_result(stopped)

    def _contact(self) -> None:
        self._contact_at = self._now()

    def _now(self) -> float:
        """Return seconds since the epoch that never go back while this process runs."""
        return self._epoch + time.monotonic()


def framework_name(service: str) -> str:
    """Return the name under which the framework of a service is listed."""
    return f"service-{service}"
