"""An agent process: the production reactor, in virtual time.

Rule: records are appended in order. Of the records that are being synced, a crash keeps the first
few; deferred records are lost with the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from signal import SIGKILL, Signals
from typing import TYPE_CHECKING
from zlib import crc32

from croupier.agent.core import events as ev
from croupier.agent.core.effects import CheckHealth, CloseExecutor, Effect, Spawn, ToExecutor
from croupier.agent.core.events import Event
from croupier.agent.core.records import AcknowledgedRecord, Place, Record, forgets, place_of
from croupier.agent.core.recovery import incomplete, recovered
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import GroupKey, Key
from croupier.agent.reactor import Batch, Reactor
from croupier.model.agent_orders import LaunchTask, SetVolume
from croupier.model.health import DISK, LAUNCH, WORK_DIR, Problem
from croupier.model.ids import FrameworkId
from croupier.model.isolation import NO_FEATURES, OF_EVERY_AGENT, Feature
from croupier.model.resources import Resources
from tests.chaos.virtual.agent_session import AgentSession
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.executor import Executor
from tests.chaos.virtual.machine import Machine, Run
from tests.chaos.virtual.network import Network
from tests.chaos.virtual.process import Process
from tests.chaos.virtual.term import Ordered

if TYPE_CHECKING:
    from tests.chaos.virtual.judge import Judge

SYNC_S = 0.002
# The time from a refused start until an operator starts the agent leniently.
MENDED_S = 5.0


class AgentProcess(Process):
    """An agent.

    Attributes:
        slow_s: the additional time of each sync.
        damage: the number of records that are lost before the next start.
        cannot_spawn: whether processes cannot be started now.
        is_full: whether the disk has room for terminal updates only.
        invents: the framework of a task that the agent invents in its next REGISTER; or empty.
        is_dir_gone: whether the work dir was moved away; it comes back unchanged.
        is_lenient: whether the agent starts although records are lost.
        finds_orphans: for a mutant: False ignores processes without a record.
        forgets_last: for a mutant: a crash loses the records of the last sync.
        syncs_first: for a mutant: False performs a batch before its records are durable.
    """

    forgets_last = False
    syncs_first = True
    finds_orphans = True

    def __init__(
        self,
        name: str,
        clock: TracedClock,
        network: Network,
        seed: str,
        masters: tuple[str, ...],
        machine: Machine,
        judge: Judge,
    ) -> None:
        super().__init__(name, clock, network, seed)
        self.masters, self.machine, self.judge = masters, machine, judge
        # One in four is of a release that runs no groups.
        self.features = OF_EVERY_AGENT if crc32(name.encode()) % 4 else NO_FEATURES
        if machine.inventory is not None:
            self.features |= {Feature.DEVICES}
        state = AgentState.of(Resources())
        self.session = AgentSession(self, state)
        self.reactor = self._reactor(state)
        self.steps = 0
        self.slow_s = 0.0
        self.cannot_spawn = self.is_full = self.is_dir_gone = False
        self.damage = 0
        self.is_lenient = False
        self.invents = FrameworkId("")
        self._epoch = 0
        self._deferred: list[Record] = []
        self._syncing: tuple[list[Record], Batch | None] | None = None
        self._deciding_epoch: int | None = None
        self._last_sync = 0
        self._check = 0
        # The streams of executors of this life; their numbers rise over all lives.
        self.streams: dict[int, Executor] = {}
        self.connections = 0

    @property
    def state(self) -> AgentState:
        return self.reactor.state

    def _reactor(self, state: AgentState) -> Reactor:
        return Reactor(state, self.session, self, self.put, self, self.clock)

    # The life of the process.

    def start(self) -> None:
        """Run the program, unless the work dir is gone or records are lost."""
        if self._up or self.is_retired or self.is_dir_gone:
            return
        if self._has_lost() and not self.is_lenient:
            self.clock.trace(f"{self.name} refuses to start: records are lost")
            # The processes that prove the loss may end, so a mark on the disk records it.
            self.machine.is_cut = True
            self.judge.on_agent_refused(self)
            self.clock.after(MENDED_S, self._start_leniently)
            return
        super().start()

    def _start_leniently(self) -> None:
        """Start despite lost records, as by an operator."""
        self.is_lenient = True
        self.start()

    def _has_lost(self) -> bool:
        unrecorded = self.machine.unrecorded() if self.finds_orphans and not self.damage else []
        return self.machine.is_cut or bool(unrecorded)

    def on_start(self) -> None:
        """Recover from the records on the machine."""
        if self.random.random() < 0.5:
            self.machine.disk = compacted(self.machine.disk)
        damaged = bool(self.damage and self.machine.disk) or self._has_lost()
        for _ in range(min(self.damage, len(self.machine.disk))):
            del self.machine.disk[self.random.randrange(len(self.machine.disk))]
        self.damage, self.is_lenient, self.machine.is_cut = 0, False, False
        if damaged:
            self.machine.disk.append(incomplete(self.machine.disk))
        state = recovered(
            self.machine.disk,
            self.machine.total,
            boot_id=self.machine.boot_id,
            life=f"{self.name}.{self.life}",
            incomplete=damaged,
        )
        state.check()
        state.features, state.inventory = self.features, self.machine.inventory
        state.volumes = set(self.machine.volumes)
        self.session = AgentSession(self, state)
        self.reactor = self._reactor(state)
        self.judge.on_agent_start(self)
        self.machine.end_orphans(self.known_runs())
        self.machine.watcher = self.put
        self._epoch, self._last_sync = 0, 0
        self.put(ev.AgentStarted())
        if self.is_full:
            self.put(ev.DiskFull())
        self.check_health(CheckHealth(0.0))
        self.session.connect(self.random.choice(self.masters))

    def known_runs(self) -> set[str]:
        """Return the runs that may have a process according to the agent's state."""
        return self.state.known_runs()

    def on_crash(self) -> None:
        """Stop watching processes; keep some of the records that were being synced."""
        if self._syncing is not None:
            records, _ = self._syncing
            self.machine.disk += records[: self.random.randint(0, len(records))]
        elif self.random.random() < 0.5:
            self.machine.disk += self._deferred[: self.random.randint(0, len(self._deferred))]
        elif self.forgets_last and self._last_sync:
            del self.machine.disk[-self._last_sync :]
        self._deferred, self._syncing = [], None
        self.machine.unwatch()
        self.streams.clear()
        self.session.end = None

    def stop(self) -> None:
        """End all tasks, notify the master, and exit."""
        self.put(ev.StopRequested())

    def _leave(self) -> None:
        """Notify the master that the agent stops, and end the process."""
        self.session.leave()
        self.clock.trace(f"{self.name} has stopped")
        self.crash(loses=False)

    # The driver.

    def turn(self) -> None:
        """Decide a batch if no sync is under way."""
        if self._syncing is not None:
            return
        for end, message in self.taken():
            if end is None:
                event = self._exited(message) if isinstance(message, Run) else message
                self._decide(event, None)  # type: ignore[arg-type]
            elif end is self.session.end:
                epoch = message.epoch if isinstance(message, Ordered) else None
                for event in self.session.events_of(message):
                    self._decide(event, epoch)
        batch = self.reactor.end_batch()
        self._deferred += batch.records
        if not batch.is_urgent:
            self._perform(batch)
            return
        if not self.syncs_first:
            self._perform(batch)
        self._syncing = (self._deferred, batch if self.syncs_first else None)
        self._deferred = []
        self.later(SYNC_S + self.slow_s, self._synced)

    def _exited(self, run: Run) -> Event:
        if self.is_dir_gone:
            # The record of the shim cannot be read.
            run.vanished = True
            return ev.Exited(run.key, unknown=True)
        unknown = run.exit_code is None and run.signal is None
        return ev.Exited(run.key, run.exit_code, run.signal, unknown)

    def _decide(self, event: Event, epoch: int | None) -> None:
        self._epoch = max(self._epoch, epoch or 0)
        self._deciding_epoch = epoch
        self.reactor.decide(event)
        self._deciding_epoch = None

    def _synced(self) -> None:
        assert self._syncing is not None
        records, batch = self._syncing
        self.machine.disk += records
        self._last_sync = len(records)
        self._syncing = None
        if batch is not None:
            self._perform(batch)
        self.wake(self.clock.now())

    def _perform(self, batch: Batch) -> None:
        self.judge.on_obeyed(self, self._epoch)
        self.reactor.send(batch)
        self.reactor.perform(batch)
        if self.reactor.has_ended and self._up and not self._inbox:
            self._leave()
        self.wake(self.reactor.wake_at())

    # The reactor's reports.

    def decided(self, event: Event, effects: Sequence[Effect], /) -> None:
        self.steps += 1
        self.state.check()
        self.judge.on_agent_step(self, self._deciding_epoch, event, list(effects))

    def performed(self, effect: Effect) -> None:
        """See `reactor.Observer`."""

    # The reactor's actions on the machine.

    def has_sandbox(self, order: LaunchTask) -> bool:
        return (order.framework_id, order.task.task_id) in self.machine.sandboxes

    def launch(self, state: AgentState, spawn: Spawn) -> ev.LaunchFailed | None:
        if self.cannot_spawn or self.is_full or self.is_dir_gone:
            return ev.LaunchFailed(spawn.key, "no processes left", cause="no processes left")
        info = state.tasks[spawn.key].info
        for mount in info.volumes:
            volume = mount.volume(spawn.key[0])
            if volume not in self.machine.volumes:
                return ev.LaunchFailed(spawn.key, "no such volume")
            if not self.judge.is_store_old:
                self.judge.volumes.on_mount(self.machine, volume, state.agent_id)
        made = self.machine.spawn(spawn.key, spawn.run, info)
        if info.executor is not None:
            random = Random(f"{self.name} {made.pid}")
            executor = Executor(made, self.machine, random, info.data == b"silent")
            executor.begin(self)
        self.put(ev.Started(spawn.key, made.pid))
        return None

    def cancel(self, key: Key) -> bool:
        """See `reactor.Machine`; no task of this agent has an image."""
        return False

    def adopt(self, key: Key, run: str) -> ev.Adopted | ev.Exited | ev.LaunchFailed | ev.Vanished:
        known = self.machine.runs.get(run)
        if known is None:
            return ev.Vanished(key, "there is no trace of it", never_started=True)
        if known.lives:
            known.is_watched = True
            return ev.Adopted(key, known.pid, self.clock.now() - known.started)
        if known.vanished:
            return ev.Vanished(key, "its shim is gone")
        return ev.Exited(key, known.exit_code, known.signal)

    def signal(self, key: Key, number: Signals) -> None:
        for live in self.machine.live:
            if live.key == key:
                self.machine.signal(live, number == SIGKILL)

    def to_executor(self, effect: ToExecutor | CloseExecutor) -> None:
        executor = self.streams.get(effect.connection)
        if executor is None:
            return
        if isinstance(effect, ToExecutor):
            executor.on_message(self, effect)
        else:
            del self.streams[effect.connection]
            if executor.stream == (self.life, effect.connection):
                executor.stream = None

    def forget_run(self, run: str) -> None:
        self.machine.dismiss(run)

    def retire(self, key: Key) -> None:
        """See `reactor.Machine`."""

    def forget_group(self, group: GroupKey) -> None:
        """See `reactor.Machine`."""

    def set_volume(self, order: SetVolume) -> None:
        """See `reactor.Machine`."""
        if order.size:
            self.machine.volumes.setdefault(order.volume, 0)
            return
        self.machine.volumes.pop(order.volume, None)
        if not self.judge.is_store_old:
            self.judge.volumes.on_removed(order.volume, self.state.agent_id)

    def check_health(self, wanted: CheckHealth) -> None:
        self._check += 1
        number = self._check

        def check() -> None:
            if number == self._check:
                self.put(ev.HealthChecked(self._problems(), wanted.is_thorough))

        self.later(wanted.within_s * self.random.uniform(0.5, 1.0), check)

    def _problems(self) -> tuple[Problem, ...]:
        found = {WORK_DIR: self.is_dir_gone, DISK: self.is_full, LAUNCH: self.cannot_spawn}
        return tuple(Problem(part, "chaos") for part, is_so in found.items() if is_so)


def compacted(records: list[Record]) -> list[Record]:
    """Return the records that no later record replaces."""
    kept: dict[Place, Record] = {}
    for record in records:
        place = place_of(record)
        if forgets(record):
            for each in [each for each in kept if each[0] == place[0]]:
                del kept[each]
        else:
            kept.pop(place, None)
            kept[place] = record
        if isinstance(record, AcknowledgedRecord):
            parts = [part for subject, part in kept if subject == place[0]]
            numbers = [int(part) for part in parts if part.isdigit()]
            for number in numbers:
                if number <= record.sequence and number != max(numbers):
                    del kept[place[0], str(number)]
    return list(kept.values())
