"""The numbers that the core goes by."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.master.allocator.starvation import PreemptionRules
from croupier.model.limits import DEFAULT_REFUSE_S, MIB


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be configured; all times are in seconds.

    Attributes:
        heartbeat_s: how often each side of a session says that it is there.
        agent_timeout_s: silence after which an agent is unreachable, and a framework's
            session is given up.
        suspect_beats: heartbeats of silence after which an agent is offered no more until it
            is heard of.
        removals: how many agents at most become unreachable within `removal_window_s`, so
            that a master which is cut off itself does not write off its cluster.
        return_timeout_s: how long a restarted master waits for an agent it knew.
        offer_lease_s: how long an offer may be held, unless the framework asks otherwise.
        max_offer_lease_s: the longest that any framework may hold an offer.
        refuse_s: how long a refusal holds that does not say; also for an expired offer.
        completed_tasks: how many ended tasks are kept to be looked at.
        used_task_ids: how many ended task ids are remembered for each framework, so that
            none is used twice.
        removed_frameworks: how many ids of removed frameworks are remembered, of those that the
            ledger knew and of others; all are refused for ever.
        gone_agents: how many agents that were declared gone are remembered, so that none
            returns.
        unreachable_agents: how many unreachable agents are remembered, if nobody misses them.
        unacknowledged: how many ended tasks a framework may leave unacknowledged before it
            can launch no more.
        verdict_bytes, all_verdict_bytes: memory of verdicts that a framework has not marked as
            seen, and that all frameworks have not, before the largest is cut off.
        description_bytes, all_description_bytes: text of the tasks of one framework, and of all,
            before nothing more is launched.
        frameworks: how many are known at most, those included that are away.
        role_levels: how many roles there may be, those above others included.
        resend_s: how long the master waits for an acknowledgement of what it tells itself.
        preemption: when room is made for those who starve.
    """

    heartbeat_s: float = 15.0
    agent_timeout_s: float = 75.0
    suspect_beats: float = 2.5
    removals: int = 100
    removal_window_s: float = 60.0
    return_timeout_s: float = 600.0
    offer_lease_s: float = 10.0
    max_offer_lease_s: float = 15.0
    refuse_s: float = DEFAULT_REFUSE_S
    completed_tasks: int = 10_000
    used_task_ids: int = 100_000
    removed_frameworks: int = 10_000
    gone_agents: int = 100_000
    unreachable_agents: int = 10_000
    unacknowledged: int = 10_000
    verdict_bytes: int = 16 * MIB
    all_verdict_bytes: int = 128 * MIB
    description_bytes: int = 256 * MIB
    all_description_bytes: int = 1024 * MIB
    frameworks: int = 10_000
    role_levels: int = 20_000
    resend_s: float = 10.0
    preemption: PreemptionRules = field(default_factory=PreemptionRules)

    @property
    def suspect_s(self) -> float:
        """Silence after which an agent is offered no more until it is heard of."""
        return min(self.suspect_beats * self.heartbeat_s, self.agent_timeout_s)
