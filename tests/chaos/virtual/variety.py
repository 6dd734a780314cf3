"""The differences between worlds, apart from faults."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from zlib import crc32

from croupier.master.core.settings import Settings
from croupier.model.devices import Device, Inventory
from croupier.model.ids import Role
from croupier.model.resources import Resources

LEASE_S = 3.0
# The disk is for volumes alone, and so large that no share is one of it.
TOTALS = (
    "cpus:2;mem:600;ports:[1-4];disk:100000",
    "cpus:4;mem:1000;ports:[1-2];disk:100000",
    "cpus:8;mem:4000;disk:100000",
)
ROLES = ("a", "a/x", "b")


@dataclass(frozen=True, slots=True)
class Habits:
    """The behaviour of a framework.

    Attributes:
        tasks: the number of tasks that it launches.
        endless: the fraction of tasks that run until they are killed.
        stubborn: the fraction of tasks that ignore SIGTERM.
        kills: the fraction of tasks that it kills.
        reconciles_s: the interval between RECONCILE calls; 0 for none.
        fails: the fraction of updates on which its handler fails the first time.
    """

    role: Role
    tasks: int
    endless: float
    stubborn: float
    kills: float
    reconciles_s: float
    fails: float
    failover_timeout_s: float


def total(random: Random) -> Resources:
    return Resources.parse(random.choice(TOTALS))


def settings(random: Random) -> Settings:
    """Return settings with short times, some with narrow bounds."""
    return Settings(
        heartbeat_s=3.0,
        agent_timeout_s=12.0,
        return_timeout_s=random.choice((8.0, 25.0)),
        offer_lease_s=4.0,
        resend_s=5.0,
        removals=random.choice((1, 100)),
        removal_window_s=10.0,
        completed_tasks=random.choice((2, 10_000)),
        used_task_ids=random.choice((2, 100_000)),
        removed_frameworks=random.choice((20, 10_000)),
        unreachable_agents=random.choice((1, 10_000)),
        unacknowledged=random.choice((2, 10_000)),
    )


def preempts(seed: str) -> bool:
    """Return whether masters preempt tasks in the world of a seed, and requeue some of them.

    In some worlds only, so that most seeds find the same mutants as before.
    """
    return crc32(f"{seed}/preemption".encode()) % 8 == 7


def inventory(seed: str, agent: str) -> Inventory | None:
    """Return the named devices of an agent; None in most worlds.

    In some worlds only, and not drawn from the streams of others, so that most seeds find the same
    mutants as before.
    """
    if crc32(f"{seed}/devices".encode()) % 6 != 5:
        return None
    random = Random(crc32(f"{seed}/{agent}/devices".encode()))
    slots = random.choices((1, 2, 4), k=random.randint(1, 3))
    groups = [(("nvlink", random.choice("ab")),) for _ in slots]
    return Inventory(
        Device(f"{agent}.{place}", groups=group, slots=number)
        for place, (number, group) in enumerate(zip(slots, groups, strict=True))
    )


def habits(random: Random) -> Habits:
    return Habits(
        role=Role(random.choice(ROLES)),
        tasks=random.choice((2, 5, 10, 20)),
        endless=random.choice((0.0, 0.2)),
        stubborn=random.choice((0.0, 0.3)),
        kills=random.choice((0.0, 0.3)),
        reconciles_s=random.choice((0.0, 3.0, 10.0)),
        fails=random.choice((0.0, 0.1)),
        failover_timeout_s=random.choice((600.0, 600.0, 600.0, 5.0)),
    )
