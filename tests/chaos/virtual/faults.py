"""The faults of a world, drawn from the seed.

Rule: a fault holds its target and its duration, so leaving one out does not change the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

# The relative frequency of each kind.
WEIGHTS = {
    "master_crash": 8,
    "master_pause": 6,
    "old_store": 2,
    "agent_crash": 8,
    "agent_pause": 4,
    "framework_crash": 6,
    "framework_pause": 3,
    "twin": 3,
    "framework_deaf": 3,
    "shim_kill": 2,
    "reboot": 2,
    "damage": 1,
    "lost_tail": 2,
    "cut": 5,
    "cut_one_way": 5,
    "cut_registry": 4,
    "slow": 3,
    "reset": 6,
    "half_reset": 4,
    "hang": 4,
    "slow_registry": 3,
    "snap": 8,
    "worst_moment": 8,
    "lost_kill": 3,
    "limited": 4,
    "usurp": 5,
    "disk_full": 2,
    "work_dir_gone": 2,
    "slow_disk": 2,
    "no_spawn": 1,
    "stop": 2,
    "teardown": 1,
    "drain": 3,
    "deactivate": 2,
    "reactivate": 3,
    "gone": 2,
    "operator_kill": 2,
    "weight": 1,
}

# Kinds that are not drawn, so that seeds find the same mutants as before.
ALL_WEIGHTS = {**WEIGHTS, "invent": 1, "torn_group": 1, "reserve": 1}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at: time of the fault in virtual seconds.
        who, other: the numbers of the targets, modulo the number of processes.
        lasts: duration in seconds.
        salt: seed of all other choices.
    """

    at: float
    kind: str
    who: int
    other: int
    lasts: float
    salt: int

    def __str__(self) -> str:
        return (
            f"{self.at:8.3f} {self.kind} who={self.who} other={self.other}"
            f" lasts={self.lasts:.3f} salt={self.salt}"
        )


def drawn(random: Random, until: float, only: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of one world, in order, of all kinds or of the kinds `only`."""
    number = random.choice((2, 4, 8, 12, 20))
    weights = {kind: ALL_WEIGHTS[kind] for kind in only or WEIGHTS}
    kinds = random.choices(list(weights), list(weights.values()), k=number)
    if random.random() < 0.3:
        # Two kinds only, so that each pair of kinds occurs often.
        few = random.sample(sorted(set(kinds)), min(2, len(set(kinds))))
        kinds = [random.choice(few) for _ in kinds]
    faults = []
    at = 0.0
    for kind in kinds:
        # Some faults begin while the one before is still in effect.
        at = random.uniform(0.5, until) if random.random() < 0.5 else at + random.uniform(0, 0.5)
        faults.append(
            Fault(
                min(at, until),
                kind,
                random.randrange(60),
                random.randrange(60),
                random.choice((0.01, 0.3, 1.5, 4.0, 9.0, 20.0)) * random.uniform(0.5, 1.5),
                random.randrange(1 << 30),
            )
        )
    if not only and faults[0].salt % 4 == 0:
        faults.append(replace(faults[0], kind="invent"))
    if not only and faults[0].salt % 8 == 1:
        faults.append(replace(faults[0], kind="torn_group"))
    if not only and faults[0].salt % 64 == 2:
        # Seldom, so that the first seeds of mutants find them as before.
        faults.append(replace(faults[0], kind="reserve"))
    return sorted(faults, key=lambda fault: fault.at)
