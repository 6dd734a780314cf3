"""The settings of the core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from croupier.master.allocator.starvation import PreemptionRules
from croupier.model.limits import DEFAULT_REFUSE_S, MIB
from croupier.model.resources import Resources

# No machine of today has more.
LARGEST_AGENT: Final = Resources.parse("cpus:4096;mem:64TB;disk:64PB;gpus:1024")
# Heartbeats of all agents together that a master wants in a second: each costs it 0.1 ms of CPU.
HEARTBEATS_PER_S: Final = 400


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and times of the core; all times are in seconds.

    Attributes:
        heartbeat_s: the interval of heartbeats on each side of a session; that of agents is longer
            in a large cluster.
        agent_timeout_s: silence after which an agent becomes unreachable, and a framework's
            session is closed.
        suspect_beats: heartbeats of silence after which an agent is not offered.
        removals: the most agents that may become unreachable within `removal_window_s`, since a
            master that receives nothing may itself be cut off.
        return_timeout_s: time that a new master gives absent agents to register.
        offer_lease_s: lease of an offer, unless the framework asks for another.
        max_offer_lease_s: the longest lease that a framework may ask for.
        refuse_s: duration of a filter when a decline names none, and of an expired offer's.
        completed_tasks: ended tasks that operators can list.
        used_task_ids: ids of ended tasks that are remembered for each framework.
        removed_frameworks: ids of removed frameworks that are remembered, recorded ones and
            others each.
        gone_agents: ids of agents declared gone that are remembered.
        unreachable_agents: unreachable agents without tasks or settings that are remembered.
        unacknowledged: ended tasks that a framework may leave unacknowledged before its launches
            are refused.
        queued_tasks: submitted tasks of one framework that wait for an agent.
        verdict_bytes, all_verdict_bytes: verdicts that one framework has not marked as seen, and
            all frameworks. Above them the framework with the most is disconnected.
        description_bytes, all_description_bytes: text of the tasks of one framework, and of all.
            Above them launches are refused.
        frameworks: known frameworks, disconnected ones included.
        role_levels: known roles, those above others included.
        resend_s: interval of terminal updates that the master sends itself.
        preemption: when resources are freed for starving frameworks.
        auth: whether callers are authenticated, and need permission for what they do.
        groups, group_members, rules: of the access policy; members of one group.
        tokens: tokens of clients, and for joining.
        agent_tokens: tokens of agents.
        owner_frameworks, owner_tasks: frameworks that one owner may have, and tasks of all of
            them together.
        adopt_unproven_s: time of a new term in which tasks that agents list need no proof.
        max_agent: the most of each named scalar that an agent may have.
        line_window_s: work that may be lined up behind each running task; 0 lines nothing up.
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
    queued_tasks: int = 100_000
    verdict_bytes: int = 16 * MIB
    all_verdict_bytes: int = 128 * MIB
    description_bytes: int = 256 * MIB
    all_description_bytes: int = 1024 * MIB
    frameworks: int = 10_000
    role_levels: int = 20_000
    resend_s: float = 10.0
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
    auth: bool = False
    groups: int = 500
    group_members: int = 1_000
    rules: int = 2_000
    tokens: int = 10_000
    agent_tokens: int = 50_000
    owner_frameworks: int = 2_000
    owner_tasks: int = 250_000
    adopt_unproven_s: float = 0.0
    max_agent: Resources = LARGEST_AGENT
    line_window_s: float = 0.1

    def agent_heartbeat_s(self, agents: int) -> float:
        """Return the interval of the heartbeats of an agent, one of `agents`.

        At most twice `heartbeat_s`: an agent keeps its interval when others leave, and must not be
        suspected then. At most a third of the timeout, so that two heartbeats may be late.
        """
        most_s = min(2 * self.heartbeat_s, self.agent_timeout_s / 3)
        return max(self.heartbeat_s, min(agents / HEARTBEATS_PER_S, most_s))

    def suspect_s(self, agents: int) -> float:
        """Return the silence after which an agent, one of `agents`, is not offered."""
        return min(self.suspect_beats * self.agent_heartbeat_s(agents), self.agent_timeout_s)
