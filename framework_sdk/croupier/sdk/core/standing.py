"""What a framework must say of itself whenever it subscribes.

Rule: a demand counts from the moment it is sent, since the master may have taken it even
if its verdict was lost; a refused one gives way to the one before. The count falls with
every task launched, as it does at the master.
"""

from __future__ import annotations

from dataclasses import replace

from croupier.model.demand import Demand


class Standing:
    """Demand and suppression of one framework, and its id once it has one."""

    def __init__(self, framework_id: str = "", demand: Demand | None = None) -> None:
        """Start with `framework_id` (empty: not given yet) and `demand`."""
        self.framework_id = framework_id
        self.suppressed = False
        self._settled = demand
        self._settled_seq = 0
        self._sent: dict[int, Demand | None] = {}

    @property
    def demand(self) -> Demand | None:
        """What to tell the master now."""
        return next(reversed(self._sent.values())) if self._sent else self._settled

    def on_demand_sent(self, seq: int, demand: Demand | None) -> None:
        """`demand` went out as call `seq`."""
        assert seq > self._settled_seq
        self._sent[seq] = demand

    def on_demand_answered(self, seq: int, taken: bool) -> None:
        """The verdict on the demand of call `seq` arrived."""
        if seq not in self._sent:
            return
        demand = self._sent.pop(seq)
        if taken and seq > self._settled_seq:
            self._settled, self._settled_seq = demand, seq

    def on_launched(self, seq: int, tasks: int, before: bool) -> bool:
        """The ACCEPT of call `seq` launched that many tasks.

        `before` says that an earlier stream carried the call: its offers died with that
        stream, so the master had taken it before this stream's SUBSCRIBE told it a demand
        without these tasks. Returns whether the master must be told the demand again.
        """
        demand = self._settled
        if demand is None or demand.count is None or seq < self._settled_seq or not tasks:
            return False
        self._settled = replace(demand, count=max(0, demand.count - tasks))
        return before and not self._sent

    def check(self) -> None:
        """Assert every invariant; O(demands under way)."""
        assert list(self._sent) == sorted(self._sent)
        assert self._settled_seq >= 0
