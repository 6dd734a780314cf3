"""Masters and agents that write down under which epoch they act, and the proof from it.

    python -m tests.chaos.real.witness master|agent FLAGS...

runs the daemon with its usual flags. It appends to `NAME.witness` in its working directory:

    begin EPOCH AT TASK...       a master begins a commit with these launches
    commit EPOCH BEGAN ENDED     etcd has confirmed it
    launch EPOCH AT TASK         an order to launch that an agent obeys

Times are seconds of CLOCK_MONOTONIC, which all processes of a machine share and no fault shifts.

Rule: two masters led at once if a commit of the older term began after one of the newer term was
confirmed, and was confirmed itself. An order needs a commit that began in its term or before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from croupier.agent import __main__ as agent
from croupier.agent.fencing import NewestMaster
from croupier.master import __main__ as master
from croupier.master.core.records import MasterRecord, Record, TaskRecord
from croupier.master.store.etcd import EtcdStore
from croupier.v1 import agent_pb2 as pb
from tests.chaos.real.checker import Violation


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the term `epoch` that etcd confirmed."""

    epoch: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Launch:
    """An order of the term `epoch` that `agent` obeyed."""

    agent: str
    epoch: int
    at: float
    task: str


@dataclass(slots=True)
class Witnesses:
    """What all daemons of a cluster wrote down.

    Attributes:
        begun: the first term with a commit of each launch. An unconfirmed commit counts, too: etcd
            may have made it.
    """

    commits: list[Commit] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)

    def add(self, daemon: str, lines: Iterable[str]) -> None:
        """Add what one daemon wrote."""
        for line in lines:
            match line.split(" "):
                case ["begin", epoch, _, *tasks]:
                    for task in tasks:
                        self.begun[task] = min(int(epoch), self.begun.get(task, int(epoch)))
                case ["commit", epoch, began, ended]:
                    self.commits.append(Commit(int(epoch), float(began), float(ended)))
                case ["launch", epoch, at, task]:
                    self.launches.append(Launch(daemon, int(epoch), float(at), task))

    def check(self) -> list[Violation]:
        """Return where terms overlap, and orders that no commit explains."""
        return [*self._overlaps(), *self._orders()]

    def _overlaps(self) -> Iterator[Violation]:
        confirmed: dict[int, float] = {}
        for commit in self.commits:
            confirmed[commit.epoch] = min(commit.ended, confirmed.get(commit.epoch, commit.ended))
        for commit in self.commits:
            for epoch, ended in confirmed.items():
                if epoch > commit.epoch and commit.began > ended:
                    told = f"a commit began {commit.began - ended:.3f} s after one of {epoch}"
                    yield Violation("two_leaders", f"epoch {commit.epoch}", told)

    def _orders(self) -> Iterator[Violation]:
        newest: dict[str, int] = {}
        for launch in sorted(self.launches, key=lambda launch: launch.at):
            known = newest.setdefault(launch.agent, launch.epoch)
            if launch.epoch < known:
                told = f"{launch.task} of epoch {launch.epoch} after {known}"
                yield Violation("old_order", launch.agent, told)
            newest[launch.agent] = max(launch.epoch, known)
            begun = self.begun.get(launch.task)
            if begun is None or begun > launch.epoch:
                told = f"epoch {launch.epoch} ordered it before its commit ({begun})"
                yield Violation("uncommitted", launch.task, told)


def read_witnesses(folder: Path) -> Witnesses:
    """Return what all daemons wrote down; a half-written last line counts as not written."""
    witnesses = Witnesses()
    for path in sorted(folder.glob("*.witness")):
        witnesses.add(path.stem, path.read_text().split("\n")[:-1])
    return witnesses


class _Writer:
    """The file of one daemon, which survives its kill."""

    def __init__(self, name: str) -> None:
        self._file = Path(f"{name}.witness").open("ab", buffering=0)  # noqa: SIM115

    def write(self, *words: object) -> None:
        self._file.write(" ".join(map(str, words)).encode() + b"\n")


def _witnessed_commit(writer: _Writer) -> Any:
    commit = EtcdStore.commit
    epochs: dict[int, int] = {}

    async def witnessed(store: EtcdStore, records: Sequence[Record]) -> None:
        # The first commit of a term has its number.
        epochs.update((id(store), each.epoch) for each in records if isinstance(each, MasterRecord))
        tasks = [record.task_id for record in records if isinstance(record, TaskRecord)]
        began = time.monotonic()
        writer.write("begin", epochs[id(store)], began, *tasks)
        await commit(store, records)
        writer.write("commit", epochs[id(store)], began, time.monotonic())

    return witnessed


def _witnessed_admit(writer: _Writer) -> Any:
    admit = NewestMaster.admit

    def witnessed(
        newest: NewestMaster, message: pb.AgentServiceConnectResponse, **flags: bool
    ) -> bool:
        is_new = admit(newest, message, **flags)
        for order in message.orders:
            if order.HasField("launch"):
                task_id = order.launch.task.task_id
                writer.write("launch", message.master_epoch, time.monotonic(), task_id)
        return is_new

    return witnessed


def main(argv: list[str]) -> None:
    """Run the daemon that `argv` names, with a witness."""
    daemon, name = argv[1], argv[2]
    sys.argv = [argv[0], *argv[3:]]
    writer = _Writer(name)
    if daemon == "master":
        with patch.object(EtcdStore, "commit", _witnessed_commit(writer)):
            master.main()
    else:
        with patch.object(NewestMaster, "admit", _witnessed_admit(writer)):
            agent.main()


if __name__ == "__main__":
    main(sys.argv)
