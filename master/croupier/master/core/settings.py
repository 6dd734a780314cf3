"""The numbers that the core goes by."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.master.allocator.starvation import PreemptionRules

MAX_REFUSE_S = 365 * 24 * 3600.0
MAX_FAILOVER_TIMEOUT_S = 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be configured; all times are in seconds.

    Attributes:
        heartbeat_s: how often each side of a session says that it is there.
        agent_timeout_s: silence after which an agent is unreachable, and a framework's
            session is given up.
        return_timeout_s: how long a restarted master waits for an agent it knew.
        offer_lease_s: how long an offer may be held, unless the framework asks for more.
        max_offer_lease_s: the most it may ask for.
        refuse_s: how long a refusal holds that does not say; also for an expired offer.
        completed_tasks: how many ended tasks are kept to be looked at.
        spent_ids: how many ended task ids are remembered for each framework, so that
            none is used twice.
        spent_frameworks: how many removed frameworks are remembered, so that none returns.
        preemption: when room is made for those who starve.
    """

    heartbeat_s: float = 15.0
    agent_timeout_s: float = 75.0
    return_timeout_s: float = 600.0
    offer_lease_s: float = 10.0
    max_offer_lease_s: float = 60.0
    refuse_s: float = 5.0
    completed_tasks: int = 10_000
    spent_ids: int = 100_000
    spent_frameworks: int = 10_000
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
