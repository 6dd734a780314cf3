"""The judge of volumes: each is where its hold is, and has the files of its own tasks alone."""

from __future__ import annotations

from collections import Counter

from croupier.master.core.records import ForgetHold, HoldRecord, TaskRecord
from croupier.model.ids import HoldId
from croupier.model.volume import Volume
from tests.chaos.virtual.machine import Machine
from tests.chaos.virtual.task_history import must


class VolumeJudge:
    """The observer of holds that are volumes, by their durable records."""

    def __init__(self, seen: Counter[str]) -> None:
        self._seen = seen
        self._live: dict[HoldId, tuple[int, HoldRecord]] = {}
        self._number = 0
        # The numbers of holds whose tasks wrote into their volumes.
        self._written: set[int] = set()

    def on_commit(self, record: HoldRecord | ForgetHold, is_store_old: bool) -> None:
        """Note a volume that was made or has ended."""
        if isinstance(record, ForgetHold):
            self._live.pop(record.hold_id, None)
            return
        known = self._live.get(record.hold_id)
        must(record.volume or known is None or is_store_old, f"{record.hold_id} is no volume now")
        if record.volume and known is None:
            self._number += 1
            self._seen["volumes"] += 1
            self._live[record.hold_id] = self._number, record

    def on_placed(self, record: TaskRecord) -> None:
        """Check that a task is placed where its volumes are, which have to be its own."""
        for mount in record.info.volumes:
            self._seen["placed with volumes"] += 1
            _, hold = self._live.get(HoldId(mount.volume_id), (0, None))
            what = f"{record.task_id} is placed with volume {mount.volume_id}"
            must(hold is not None, f"{what}, which does not exist")
            assert hold is not None
            must(hold.framework_id == record.framework_id, f"{what} of another")
            must(hold.agent_id == record.agent_id, f"{what}, which is on {hold.agent_id}")

    def on_mount(self, machine: Machine, volume: Volume, agent: str) -> None:
        """Check that a task that starts finds what the tasks before it wrote, and nothing else."""
        number, hold = self._live.get(volume.volume_id, (0, None))
        if hold is None or not _is_of(hold, volume, agent):
            # It has ended meanwhile, with its framework.
            return
        found = machine.volumes[volume]
        must(found in (0, number), f"{machine.name} shows {volume.volume_id} with older files")
        is_lost = number in self._written and not found
        must(not is_lost, f"{machine.name} has lost the files of {volume.volume_id}")
        machine.volumes[volume] = number
        self._written.add(number)
        self._seen["mounts"] += 1

    def on_removed(self, volume: Volume, agent: str) -> None:
        """Check that a volume that is removed has ended."""
        _, hold = self._live.get(volume.volume_id, (0, None))
        is_live = hold is not None and _is_of(hold, volume, agent)
        must(not is_live, f"{agent} removes {volume.volume_id}, which has not ended")


def _is_of(hold: HoldRecord, volume: Volume, agent: str) -> bool:
    """Return whether a volume of an agent is that of the hold."""
    return (hold.framework_id, hold.agent_id) == (volume.framework_id, agent)
