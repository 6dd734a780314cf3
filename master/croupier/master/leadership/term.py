"""A term: one period of leadership, from recovery to the end of all sessions.

Rule: a term that has ended does nothing more, even what was under way. The next term, here or on
another master, starts from the store and takes nothing from memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from croupier.master.access.cluster_keys import LaunchProofs, LinkKeys
from croupier.master.core.events import AccountingDue, Claim
from croupier.master.core.records import MasterRecord
from croupier.master.core.registry import Registry
from croupier.master.core.state import State
from croupier.master.core.state_recovery import recover_state
from croupier.master.driver import Driver
from croupier.master.eventlog.lines import FORMAT, Head
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.eventlog.writer import Writer
from croupier.master.journal.journal import Journal
from croupier.master.journal.watch import Readers
from croupier.master.leadership.lineage import Lineage, Names, next_record, refusal
from croupier.master.leadership.recovery import Recovery
from croupier.master.log import TaskLog
from croupier.master.metrics.counters import Metrics
from croupier.master.overview.history import History
from croupier.master.sealing import KeyBox
from croupier.master.sessions import SessionLimits, Sessions
from croupier.master.store import Store
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, FailedOver, InvalidRequest
from croupier.model.store_position import StorePosition
from croupier.net.task_scope import end
from croupier.net.version import croupier_version
from croupier.process.garbage import LONG_COLLECTIONS
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # cyclopts
    from croupier.master.config import MasterConfig

# Interval between checks of the store.
CHECK_STORE_S = 5.0
# Interval of accounting steps.
ACCOUNT_S = 60.0
# Agents come back in this time, and what the master makes for them lives as long as they do.
GROWTH_S = 60.0

_log = get_logger("croupier.master")


class Overtaken(FailedOver):
    """An agent has proven a position that the store of the term does not know."""

    def __init__(self, message: str, position: StorePosition) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class TermSetting:
    """What all terms of a master have in common; `box` seals and opens the secrets of tasks."""

    config: MasterConfig
    metrics: Metrics
    clock: Clock
    limits: SessionLimits | None
    box: KeyBox


class Term:
    """A term that has begun. `serve` decides; `end` must follow.

    Attributes:
        epoch: the number of the term, higher than that of any term before.
        driver: owns the state.
        journal: what happened in this term, for people.
        readers: those that watch the journal.
        history: samples of the last hour.
        recovery: the agents that have not re-registered yet.
        began_s: how long it took to begin, in seconds.
        clock: decides when credentials expire.
        links: keys of links to output; None if output needs no links.
    """

    def __init__(
        self,
        setting: TermSetting,
        store: Store,
        record: MasterRecord,
        state: State,
        recorder: FileRecorder | None,
        leads: Callable[[], bool],
    ) -> None:
        """Own `store` and the recovered `state`; see `begin_term`."""
        config, clock = setting.config, setting.clock
        self.epoch, self.store, self.clock, self.recorder = record.epoch, store, clock, recorder
        self.lineage = Lineage(record, lambda: store.commits)
        self.links = LinkKeys(record.secret) if config.requires_auth else None
        self.sessions = sessions = Sessions(
            setting.limits,
            setting.box,
            self.links,
            LaunchProofs(record.secret),
            accepts_plaintext=config.insecure,
        )
        self.journal, self.readers, self.history = Journal(state, clock), Readers(), History(clock)
        self.driver = Driver(
            state,
            store,
            sessions,
            setting.metrics,
            clock,
            recorder,
            leads,
            lambda change: sessions.end_revoked(change.revoked),
            (self.journal.happened, TaskLog(state, clock).happened),
        )
        sessions.report_to(self.driver.inbox)
        self.recovery = Recovery(state, clock)
        self.heartbeat_s, self.began_s = config.heartbeat, 0.0

    async def serve(self) -> None:
        """Process events until cancelled.

        Raises:
            Overtaken: if an agent has proven that the store is an old copy.
            FailedOver: if another master leads.
            Exception: the error that ended one of the term's own tasks.
        """
        recovering = asyncio.create_task(self.recovery.watch(), name="recovery")
        tasks = {
            asyncio.create_task(self.driver.run(), name="driver"),
            asyncio.create_task(self.sessions.beat(self.heartbeat_s), name="heartbeats"),
            asyncio.create_task(self._watch_store(), name="store"),
            asyncio.create_task(self.sessions.watch_expiry(self.clock), name="credentials"),
            asyncio.create_task(self.history.record(self.driver.read), name="history"),
            asyncio.create_task(self._account(), name="accounting"),
            recovering,
        }
        try:
            while True:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                # Only recovery ends without an error.
                tasks.remove(recovering)
        except FailedOver as error:
            if self.lineage.overtaken_by is not None:
                raise Overtaken(str(error), self.lineage.overtaken_by) from error
            raise
        finally:
            await end(*tasks)

    async def _watch_store(self) -> NoReturn:
        """Check the store every `CHECK_STORE_S`; raises Unavailable if it is not in its place."""
        while True:
            await asyncio.sleep(CHECK_STORE_S)
            await self.store.check()

    async def _account(self) -> NoReturn:
        """Have the core end an accounting step about once a minute, at whole minutes.

        The first one is at once if there are reservations, which need the time of day.
        """
        pause_s = 0.0 if self.driver.state.reservations else ACCOUNT_S
        while True:
            await asyncio.sleep(pause_s)
            wall_ms = self.clock.wall_ms()
            await self.driver.inbox.put(AccountingDue(wall_ms))
            # From half to one and a half of the interval.
            pause_s = 1.5 * ACCOUNT_S - (wall_ms / 1000 + ACCOUNT_S / 2) % ACCOUNT_S

    def depose(self, error: CroupierError) -> None:
        """Drop everything that is queued for peers and end their sessions with `error`."""
        self.sessions.cut_all(error)
        self.journal.close(error)
        self.driver.close(error)

    async def end(self, error: CroupierError) -> None:
        """Send every peer what is queued, then `error`, and close everything."""
        self.sessions.end_all(error)
        self.journal.close(error)
        self.driver.close(error)
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)
        await self.store.close()


async def begin_term(
    setting: TermSetting,
    store: Store,
    leads: Callable[[], bool],
    overtaken_by: StorePosition | None,
) -> Term:
    """Recover the records of the store, and make a new epoch durable.

    The term owns `store` once it has begun. `overtaken_by` is a proven position that the store of
    an earlier term did not know.

    Raises:
        InvalidRequest: if the store cannot be read, or is an old copy.
        Unavailable: if the store cannot be reached, or the event log cannot be written.
        FailedOver: if another master leads.
    """
    config, clock = setting.config, setting.clock
    started = clock.now()
    LONG_COLLECTIONS.expect_growth(GROWTH_S)
    registry = await store.load()
    given_up = await _given_up(config, store, registry.master, overtaken_by)
    record = next_record(registry.master, store.commits, Names.new(), given_up)
    await store.commit([record])
    if registry.master is None:
        _log.info("cluster_began", cluster=record.cluster)
    now = clock.now()
    recorder = _open_log(config, registry, record.master_id, clock, now)
    settings, allocator = config.settings(), config.allocator()
    try:
        # Tens of thousands of records take tenths of a second.
        state = await asyncio.to_thread(
            recover_state, registry, record.master_id, settings, allocator, now
        )
    except BaseException:
        # The event log must hold the registry that broke the core.
        if recorder is not None:
            await asyncio.to_thread(recorder.close)
        raise
    term = Term(setting, store, record, state, recorder, leads)
    term.began_s = clock.now() - started
    _log.info(
        "term_began",
        master_id=state.master_id,
        epoch=record.epoch,
        agents_known=len(state.agents),
        frameworks_known=len(state.frameworks),
        tasks_known=term.recovery.tasks,
        took_s=round(term.began_s, 3),
    )
    return term


async def _given_up(
    config: MasterConfig,
    store: Store,
    before: MasterRecord | None,
    overtaken_by: StorePosition | None,
) -> StorePosition | None:
    """Return the furthest position given up, or None; raises InvalidRequest if not accepted."""
    lineage = Lineage(before or MasterRecord("", 0), lambda: store.commits)
    claims = {"an agent": overtaken_by, "the file that names its cluster": store.marked}
    given_up: StorePosition | None = None
    for source, claim in claims.items():
        if claim is None or lineage.place(claim) is Claim.KNOWN:
            continue
        if config.recover != "old-store":
            await store.mark(claim)
            raise InvalidRequest(refusal(str(config.store), claim, lineage, source))
        _log.warning("old_store_accepted", given_up=str(claim), store=str(lineage))
        if given_up is None or claim.rank > given_up.rank:
            given_up = claim
    return given_up


def _open_log(
    config: MasterConfig, registry: Registry, master_id: str, clock: Clock, now: float
) -> FileRecorder | None:
    flags = config.recording
    if flags.event_log is None:
        return None
    head = Head(
        FORMAT,
        croupier_version(),
        master_id,
        part=1,
        at=now,
        wall_ms=clock.wall_ms(),
        events=0,
        digest="",
        settings=config.settings(),
        policy=config.policy,
        seed=0,
        rules=config.rules(),
        roles=config.weights.settings(),
        registry=_without_secret(registry),
    )
    writer = Writer(flags.event_log.expanduser(), flags.event_log_files)
    return FileRecorder(writer, flags.event_log_size.bytes, head, clock)


def _without_secret(registry: Registry) -> Registry:
    """Return `registry` without the secret that signs positions of the store."""
    if registry.master is None:
        return registry
    return replace(registry, master=replace(registry.master, secret=""))
