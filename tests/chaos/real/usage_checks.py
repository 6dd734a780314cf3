"""Compare the usage that the master has counted with the journals. Pure but for `read_used`.

Rule: the cpus that a framework used are at least those of its tasks for as long as they ran, and at
most for as long as it waited for their ends. Each new term may lose or add one accounting step; it
counts the time before it when it ends its own first step, which may be in a later round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from croupier.model.resources import Resources
from croupier.model.scalar import MILLI
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.chaos.real.checker import Violation
from tests.chaos.real.journal import Asked, Entry, Update
from tests.chaos.real.work import Work

# The master ends an accounting step about once a minute.
STEP_S = 65.0
# Of reading the clocks of several processes, and of messages on their way.
SLACK_S = 1.0
RPC_S = 10.0


@dataclass(frozen=True, slots=True)
class Used:
    """What the master has counted at a moment.

    Attributes:
        at_s: the moment, on the monotonic clock.
        epoch: the number of masters that have led.
        counted_s: for how long masters have counted.
        cpus: cpu seconds, by framework.
        capacity: cpu seconds of the cluster.
    """

    at_s: float
    epoch: int
    counted_s: float
    cpus: Mapping[str, float]
    capacity: float


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What a framework witnessed, in cpu seconds.

    Attributes:
        least: of tasks that came to their end, for as long as they ran.
        most: of all tasks, from their request to the update with their end.
    """

    least: float
    most: float


@dataclass(slots=True)
class UsageWitness:
    """Finds the tasks that ended since the last call."""

    works: Callable[[str], Work]
    _known: set[str] = field(default_factory=set)

    def witness(self, entries: Sequence[Entry]) -> Witnessed:
        """Return what the tasks of a framework used that ended since the last call."""
        asked: dict[str, float] = {}
        least = most = 0.0
        for entry in entries:
            match entry:
                case Asked(task_ids, time_s):
                    asked.update(dict.fromkeys(task_ids, time_s))
                case Update(task_id) if _is_end(entry) and task_id not in self._known:
                    self._known.add(task_id)
                    work = self.works(task_id)
                    cpus = Resources.parse(work.resources)["cpus"] / MILLI
                    most += cpus * (entry.time_s - asked[task_id])
                    if entry.exit_code is not None and entry.state != "KILLED":
                        least += cpus * work.seconds
        return Witnessed(least, most)


def check_used(
    before: Used, after: Used, witnessed: Mapping[str, Witnessed], *, began_s: float,
    is_clock_true: bool, is_reached: bool,
) -> Iterator[Violation]:  # fmt: skip
    """Yield what was counted twice or not at all between two moments.

    `began_s`: when the cluster was started. `is_clock_true`: no clock has jumped. `is_reached`: no
    agent can have been unreachable, whose tasks do not count meanwhile.
    """
    passed_s, counted_s = after.at_s - before.at_s, after.counted_s - before.counted_s
    # The term of before may have to count the time before it.
    terms = after.epoch - before.epoch + (before.epoch > 1)
    lives_s = after.at_s - began_s
    if is_clock_true and after.counted_s > lives_s + SLACK_S:
        yield Violation("usage", "cluster", f"{after.counted_s:.1f} s are counted in {lives_s:.1f}")
    if is_clock_true and counted_s < passed_s - SLACK_S - terms * STEP_S:
        yield Violation("usage", "cluster", f"only {counted_s:.1f} of {passed_s:.1f} s are counted")
    if sum(after.cpus.values()) > after.capacity:
        yield Violation("usage", "cluster", f"{after.cpus} are of {after.capacity} cpu seconds")
    cpus = after.capacity / max(after.counted_s, SLACK_S)
    allowed = cpus * (SLACK_S + terms * STEP_S)
    for name, mine in witnessed.items():
        used = after.cpus.get(name, 0.0) - before.cpus.get(name, 0.0)
        least = mine.least if is_reached else 0.0
        if not least - allowed <= used <= mine.most + allowed:
            due = f"{least:.1f} to {mine.most:.1f}, and {allowed:.1f} are allowed"
            yield Violation("usage", name, f"{used:.1f} cpu seconds are counted, and due are {due}")


def _is_end(entry: Update) -> bool:
    is_first = entry.handled and entry.sequence > 0
    return is_first and TaskState[entry.state].is_terminal


async def read_used(operator: OperatorServiceStub) -> Used:
    """Read what the master has counted, also in hours that a clock was wrong about."""
    at_s = time.monotonic()
    master = await operator.GetMaster(pb.GetMasterRequest(), timeout=RPC_S)
    asked = pb.GetUsageRequest(by=pb.USAGE_BY_FRAMEWORK, until_ms=2**62)
    told = await operator.GetUsage(asked, timeout=RPC_S)
    cpus = {view.name: view.used["cpus"] for view in told.usage}
    return Used(at_s, master.epoch, told.counted_s, cpus, told.capacity["cpus"])
