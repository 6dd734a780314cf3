"""One leadership: from what the store holds to the last word to every peer.

Rule: a term that is over does nothing more, whatever is still under way in it. What it had
in memory dies with it; the next one, here or elsewhere, starts from the store.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from croupier.master.core.events import Claim
from croupier.master.core.records import MasterRecord, Registry
from croupier.master.core.state import State
from croupier.master.driver import Driver, Observer
from croupier.master.eventlog.lines import FORMAT, Head
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.eventlog.writer import Writer
from croupier.master.lineage import Lineage, Names, next_record, refusal
from croupier.master.recovery import Recovery
from croupier.master.session_limits import SessionLimits
from croupier.master.sessions import Sessions
from croupier.master.store import Store
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.store_position import StorePosition
from croupier.net.version import croupier_version
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # cyclopts
    from croupier.master.config import MasterConfig

# How often a store is looked at that nothing is written to.
CHECK_STORE_S = 5.0

_log = get_logger("croupier.master")


class Term:
    """Recovers in `begin`, decides in `serve`, and is over with `end` at the latest.

    Attributes:
        epoch: the number of this leadership, one higher than that of the one before; 0
            before it has begun.
        sessions: the streams of this term.
        recorder: keeps the event log, if there is one.
        began_s: how long it took to begin, in seconds.
        recovery: how far it is in learning how things stand, once it has begun.
    """

    def __init__(
        self,
        config: MasterConfig,
        store: Store,
        observer: Observer,
        clock: Clock,
        leads: Callable[[], bool],
        limits: SessionLimits | None = None,
        overtaken_by: StorePosition | None = None,
    ) -> None:
        """Nothing is opened before `begin`.

        Args:
            config: of the master.
            store: of this term.
            observer: measures the driver.
            clock: monotonic.
            leads: tells whether this master still leads.
            limits: of its sessions.
            overtaken_by: a proven position that an earlier term did not know.
        """
        self._config, self._store = config, store
        self._observer, self._clock, self._leads = observer, clock, leads
        self._overtaken_by = overtaken_by
        self._driver: Driver | None = None
        self.epoch, self.began_s = 0, 0.0
        self.recovery: Recovery | None = None
        self._lineage: Lineage | None = None
        self.sessions = Sessions(limits)
        self.recorder: FileRecorder | None = None

    @property
    def driver(self) -> Driver:
        """The task that owns the state; there is one once the term has begun."""
        assert self._driver is not None
        return self._driver

    @property
    def lineage(self) -> Lineage:
        """The history of the store; there is one once the term has begun."""
        assert self._lineage is not None
        return self._lineage

    @property
    def overtaken_by(self) -> StorePosition | None:
        """A proven position that the store does not know; None: no agent has said one."""
        return None if self._lineage is None else self._lineage.overtaken_by

    async def begin(self) -> None:
        """Take over: read what the store holds, and make the new epoch durable.

        Raises:
            InvalidRequest: if the store holds what cannot be read, or is an old copy.
            Unavailable: if the store cannot be reached, or the event log cannot be kept.
            FailedOver: if another master leads.
        """
        started = self._clock.now()
        registry = await self._store.load()
        given_up = await self._given_up(registry.master)
        names = Names(secrets.token_hex(3), secrets.token_hex(32), secrets.token_hex(8))
        record = next_record(registry.master, self._store.commits, names, given_up)
        await self._store.commit([record])
        if registry.master is None:
            _log.info("cluster_began", cluster=record.cluster)
        self._lineage = Lineage(record, lambda: self._store.commits)
        now = self._clock.now()
        self.epoch = record.epoch
        self.recorder = self._open_log(registry, record.master_id, now)
        state = self._recover(registry, record, now)
        self._driver = Driver(
            state,
            self._store,
            self.sessions,
            self._observer,
            self._clock,
            self.recorder,
            self._leads,
        )
        self.sessions.report_to(self._driver.inbox)
        self.recovery = Recovery(state, self._clock)
        self.began_s = self._clock.now() - started
        _log.info(
            "term_began",
            master_id=state.master_id,
            epoch=self.epoch,
            agents_known=len(state.agents),
            frameworks_known=len(state.frameworks),
            tasks_known=self.recovery.tasks,
            took_s=round(self.began_s, 3),
        )

    async def _given_up(self, before: MasterRecord | None) -> StorePosition | None:
        """The furthest position beyond this store that is given up; None: there is none.

        Raises:
            InvalidRequest: if there is one, and the operator has not said to go on.
        """
        lineage = Lineage(before or MasterRecord("", 0), lambda: self._store.commits)
        claims = {
            "an agent": self._overtaken_by,
            "the file that names its cluster": self._store.marked,
        }
        given_up: StorePosition | None = None
        for who, claim in claims.items():
            if claim is None or lineage.place(claim) is Claim.KNOWN:
                continue
            if self._config.recover != "old-store":
                await self._store.mark(claim)
                raise InvalidRequest(refusal(str(self._config.store), claim, lineage, who))
            _log.warning("old_store_accepted", given_up=str(claim), store=str(lineage))
            if given_up is None or claim.rank > given_up.rank:
                given_up = claim
        return given_up

    async def serve(self) -> None:
        """Decide until cancelled.

        Raises:
            FailedOver: if another master leads.
            Exception: whatever ended one of the term's own tasks.
        """
        assert self.recovery is not None
        recovering = asyncio.create_task(self.recovery.watch(), name="recovery")
        tasks = {
            asyncio.create_task(self.driver.run(), name="driver"),
            asyncio.create_task(self.sessions.beat(self._config.heartbeat), name="heartbeats"),
            asyncio.create_task(self._watch_store(), name="store"),
            recovering,
        }
        try:
            while True:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                # It alone has an end.
                tasks.remove(recovering)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_store(self) -> NoReturn:
        """Look for as long as the term lasts whether the store is still in its place.

        Raises:
            Unavailable: if it is not.
        """
        while True:
            await asyncio.sleep(CHECK_STORE_S)
            await self._store.check()

    def depose(self, error: CroupierError) -> None:
        """Say nothing more to anybody but `error`, from this moment on."""
        self.sessions.cut_all(error)
        self._close_driver(error)

    async def end(self, error: CroupierError) -> None:
        """Tell every peer `error` after what is queued, and let go of everything."""
        self.sessions.end_all(error)
        self._close_driver(error)
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)
        await self._store.close()

    def _close_driver(self, error: CroupierError) -> None:
        if self._driver is not None:
            self._driver.close(error)

    def _recover(self, registry: Registry, record: MasterRecord, now: float) -> State:
        config = self._config
        return State.recovered(
            registry, record.master_id, config.settings(), config.allocator(), now
        )

    def _open_log(self, registry: Registry, master_id: str, now: float) -> FileRecorder | None:
        config = self._config
        if config.event_log is None:
            return None
        head = Head(
            FORMAT,
            croupier_version(),
            master_id,
            part=1,
            at=now,
            wall_ms=self._clock.wall_ms(),
            events=0,
            decided="",
            settings=config.settings(),
            policy=config.policy,
            seed=0,
            rules=config.rules(),
            roles=config.weights.settings(),
            registry=_without_secret(registry),
        )
        writer = Writer(config.event_log.expanduser(), config.event_log_files)
        return FileRecorder(writer, config.event_log_size.bytes, head, self._clock)


def _without_secret(registry: Registry) -> Registry:
    """For a log: who has the secret can say what this cluster's masters have not."""
    if registry.master is None:
        return registry
    return replace(registry, master=replace(registry.master, secret=""))
