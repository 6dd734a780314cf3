"""Deliberate bugs: real daemons with one bug each, to prove that the suite finds it.

    python -m tests.chaos.real.mutants NAME FLAGS...

runs the mutant's daemon with its usual flags. No flag of the product does this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from croupier.agent import __main__ as agent
from croupier.agent import devices, machine
from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core import on_executor, status_updates
from croupier.agent.core.records import Record as AgentRecord
from croupier.agent.core.records import TaskRecord as AgentTaskRecord
from croupier.agent.core.records import UpdateRecord
from croupier.agent.core.tasks import PendingUpdates
from croupier.agent.isolation.disk_size import NOTHING, FileTotals, HiddenFiles
from croupier.agent.run_ends import RunEnds
from croupier.agent.volumes import Volumes
from croupier.master import __main__ as master
from croupier.master.allocator.agent_allocation import AgentAllocation
from croupier.master.allocator.reservations import Reservation
from croupier.master.core import on_hold, on_line, on_submit, step, task_moves
from croupier.master.core.records import HoldRecord, Record, ReservationRecord, TaskRecord
from croupier.master.core.state import State
from croupier.master.core.usage import UsageLedger
from croupier.master.core.usage_buckets import Account
from croupier.master.store.sqlite import SqliteStore
from croupier.model.agent_orders import SetVolume
from croupier.model.devices import Inventory
from croupier.model.ids import HoldId
from croupier.model.resources import Resources
from croupier.process.queue_writer import LineWriter
from tests.chaos.virtual import broken


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug.

    Attributes:
        what: a description.
        daemon: `master` or `agent`.
        target, name, broken: the attribute that is replaced, and its replacement.
        fault: part of the name of the kind of fault that reveals it soon.
        seen_as: kinds of violations; at least one must be found.
        is_preloaded: whether that fault is one of `preload_faults`.
    """

    what: str
    daemon: str
    target: Any
    name: str
    broken: Callable[..., Any]
    fault: str
    seen_as: tuple[str, ...]
    is_preloaded: bool = False

    def words(self, name: str) -> Sequence[str]:
        """Return the command of the daemon, up to its flags."""
        return (sys.executable, "-m", "tests.chaos.real.mutants", name)


_commit = SqliteStore.commit
_checkpoint = Checkpoint.commit
_add = PendingUpdates.add
_set_volume = Volumes.set
_neediest = AgentAllocation._neediest
_variables = devices.variables
_use = UsageLedger.use
_on_message = on_executor.on_message


async def _commit_no_tasks(store: SqliteStore, records: Sequence[Record]) -> None:
    await _commit(store, [record for record in records if not isinstance(record, TaskRecord)])


async def _commit_no_holds(store: SqliteStore, records: Sequence[Record]) -> None:
    await _commit(store, [record for record in records if not isinstance(record, HoldRecord)])


async def _commit_no_reservations(store: SqliteStore, records: Sequence[Record]) -> None:
    kept = [record for record in records if not isinstance(record, ReservationRecord)]
    await _commit(store, kept)


async def _checkpoint_no_calls(checkpoint: Checkpoint, records: Sequence[AgentRecord] = ()) -> int:
    """Record no update of an executor, which is told that it is durable."""
    kept = [r for r in records if not (isinstance(r, UpdateRecord) and r.status.update_id)]
    return await _checkpoint(checkpoint, kept)


async def _checkpoint_no_tasks(checkpoint: Checkpoint, records: Sequence[AgentRecord] = ()) -> int:
    lost = (AgentTaskRecord, UpdateRecord)
    return await _checkpoint(checkpoint, [r for r in records if not isinstance(r, lost)])


def _keep_nothing(updates: PendingUpdates, status: Any) -> None:
    """Send an update once and treat it as acknowledged."""
    _add(updates, status)
    updates.acknowledge(status.sequence)


def _release_nothing(state: State, task: Any) -> None:
    task.is_charged = False


def _find_nothing(_hidden: HiddenFiles, _run: str, _sandbox: int) -> FileTotals:
    return NOTHING


def _sweep_nothing(ends: RunEnds, key: Any, running: Any) -> None:
    """Neither end nor report what a killed shim left."""
    return


def _decide_nothing(*_: Any) -> Iterator[Any]:
    yield from ()


def _say_twice(state: Any, message: Any) -> Iterator[Any]:
    for _ in range(2):
        yield from _on_message(state, message)


def _deal_to_all(allocation: AgentAllocation) -> Any:
    """Deal a hold as if it were an agent."""
    agent = allocation._agent
    owner, agent.owner = agent.owner, None
    try:
        return _neediest(allocation)
    finally:
        agent.owner = owner


def _make_anew(volumes: Volumes, order: SetVolume) -> None:
    """Empty a volume whenever the agent registers."""
    if order.size:
        _set_volume(volumes, replace(order, size=0))
    _set_volume(volumes, order)


def _remove_nothing(volumes: Volumes, order: SetVolume) -> None:
    if order.size:
        _set_volume(volumes, order)


def _check_no_owner(state: State, _framework: Any, task: Any, _role: Any, _at: Any = None) -> Any:
    holds = (state.holds.get(HoldId(mount.volume_id)) for mount in task.volumes)
    return next((hold.agent_id for hold in holds if hold is not None), None)


def _tells_first_device(inventory: Inventory | None, task: Resources) -> dict[str, str]:
    """Tell each task that its devices are the first ones."""
    told = _variables(inventory, task)
    if inventory is not None and "CROUPIER_DEVICES" in told:
        number = told["CROUPIER_DEVICES"].count(",") + 1
        first = [device.device_id for device in inventory.devices[:number]]
        told["CROUPIER_DEVICES"] = ",".join(first)
    return told


def _bars_none(*_: object) -> bool:
    return False


def _use_twice(
    usage: UsageLedger, account: Account, scalars: Mapping[str, int], sign: int = 1
) -> None:
    _use(usage, account, {name: 2 * milli for name, milli in scalars.items()}, sign)


def _write_at_once(writer: LineWriter, data: bytes) -> None:
    writer._write_bytes(data)


MUTANTS = {
    "ledger": Mutant(
        "the master answers ACCEPTs that are not durable",
        "master", SqliteStore, "commit", _commit_no_tasks, "orders lost",
        ("lost", "unanswered", "ran_unasked"),
    ),
    "checkpoint": Mutant(
        "the agent starts tasks that are not durable",
        "agent", Checkpoint, "commit", _checkpoint_no_tasks, "kill agent",
        ("wrong_end", "ran_twice", "lost", "orphan"),
    ),
    "updates": Mutant(
        "the agent sends updates once, whether or not they arrive",
        "agent", PendingUpdates, "add", _keep_nothing, "framework's network",
        ("lost", "skipped"),
    ),
    "accounts": Mutant(
        "the master never takes back what tasks held",
        "master", task_moves, "release_task", _release_nothing, "kill framework",
        ("leak", "counted_twice", "stuck"),
    ),
    "disk": Mutant(
        "the agent does not count the removed files that a task has open",
        "agent", HiddenFiles, "of", _find_nothing, "kill framework",
        ("lost", "stuck"),
    ),
    "sweep": Mutant(
        "the agent does not look after what a killed shim leaves",
        "agent", RunEnds, "_sweep", _sweep_nothing, "kill shim",
        ("lost", "orphan"),
    ),
    "call-updates": Mutant(
        "the agent tells executors that updates are durable, which are not",
        "agent", Checkpoint, "commit", _checkpoint_no_calls, "kill agent",
        ("ran_twice", "wrong_end", "lost"),
    ),
    "call-ends": Mutant(
        "the agent does not end tasks with their executor",
        "agent", status_updates, "_end_child", _decide_nothing, "kill framework",
        ("lost", "stuck", "died"),
    ),
    "messages": Mutant(
        "the agent passes each message to an executor on twice",
        "agent", on_executor, "on_message", _say_twice, "kill framework",
        ("message_twice",),
    ),
    "holds": Mutant(
        "the master answers ACCEPTs whose holds are not durable",
        "master", SqliteStore, "commit", _commit_no_holds, "kill leader",
        ("hold_lost",),
    ),
    "hold-ends": Mutant(
        "the master never ends a hold whose time is over",
        "master", on_hold, "on_hold_due", _decide_nothing, "kill framework",
        ("leak",),
    ),
    "hold-users": Mutant(
        "the master offers a hold to all frameworks",
        "master", AgentAllocation, "_neediest", _deal_to_all, "kill framework",
        ("hold_of_another",),
    ),
    "volumes": Mutant(
        "the agent makes its volumes anew when it registers",
        "agent", Volumes, "set", _make_anew, "kill leader",
        ("volume_lost",),
    ),
    "volume-ends": Mutant(
        "the agent does not remove volumes that were released",
        "agent", Volumes, "set", _remove_nothing, "kill framework",
        ("kept",),
    ),
    "volume-users": Mutant(
        "the master lets all frameworks submit tasks for a volume",
        "master", on_submit, "check_volumes", _check_no_owner, "kill framework",
        ("volume_of_another",),
    ),
    "gangs": Mutant(
        "the others of a gang run on when a member has ended",
        "master", step, "settle_gangs", broken.settles_no_gangs, "kill framework",
        ("lost", "stuck", "gang_half"),
    ),
    "requeues": Mutant(
        "the master queues a preempted task again while it is being killed",
        "master", on_line, "ends_run", broken.requeues_early, "kill framework",
        ("ran_twice", "wrong_end"),
    ),
    "devices": Mutant(
        "the agent tells all tasks of its first devices",
        "agent", machine, "variables", _tells_first_device, "kill framework",
        ("device_twice",),
    ),
    "reservations": Mutant(
        "the master answers reservations that are not durable",
        "master", SqliteStore, "commit", _commit_no_reservations, "kill leader",
        ("reservation_lost",),
    ),
    "reservation-users": Mutant(
        "the master deals reserved agents to all frameworks",
        "master", Reservation, "bars", _bars_none, "kill framework",
        ("reserved",),
    ),
    "usage": Mutant(
        "the master counts twice what tasks use",
        "master", UsageLedger, "use", _use_twice, "kill framework",
        ("usage",),
    ),
    "log": Mutant(
        "an error of the log escapes",
        "master", LineWriter, "put", _write_at_once, "broken log",
        ("died", "bug", "stuck"), is_preloaded=True,
    ),
}  # fmt: skip


def main(argv: list[str]) -> None:
    mutant = MUTANTS[argv[1]]
    sys.argv = [argv[0], *argv[2:]]
    daemons = {"master": master.main, "agent": agent.main}
    with patch.object(mutant.target, mutant.name, mutant.broken):
        daemons[mutant.daemon]()


if __name__ == "__main__":
    main(sys.argv)
