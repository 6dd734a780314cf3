"""Faults of simulated peers: crashes, silence, late answers, random declines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from croupier.lab.cluster import SimulatedCluster
from croupier.master.core.effects import Effect
from croupier.master.core.events import Received, SessionEnded
from croupier.master.core.messages import Offered, Rescinded, ToAgent, ToFramework
from croupier.master.core.state import State
from croupier.master.core.step import Event, step
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, OfferId, Role
from croupier.sim.agent import SimulatedAgent
from croupier.sim.framework import Ended, Habits, SimulatedFramework
from croupier.sim.kernel import Action, Kernel
from croupier.sim.work import Work
from tests.harness.invariants import check_state


def every(kernel: Kernel, interval_s: float, action: Action) -> None:
    """Run `action` now and after each `interval_s`, for ever."""

    def again() -> None:
        action()
        kernel.at(kernel.now + interval_s, again)

    kernel.at(kernel.now, again)


def beat(peer: SimulatedAgent | SimulatedFramework) -> None:
    """Send a heartbeat if the peer is connected."""
    if peer._session is not None:
        peer.kernel.step(Received(peer._session))


def disconnect(peer: SimulatedAgent | SimulatedFramework) -> None:
    """Break the session; tasks run on."""
    if peer._session is not None:
        session, peer._session = peer._session, None
        if isinstance(peer, SimulatedFramework):
            peer._offers.clear()
        peer.kernel.end_session(session)
        peer.kernel.step(SessionEnded(session, "the stream broke"))


def crash(agent: SimulatedAgent, down_s: float, tasks_survive: bool = False) -> None:
    """Break the session, and connect again after `down_s`.

    Unless `tasks_survive`, the machine crashes too and running tasks are lost without an update.
    Updates that were not acknowledged are on disk.
    """
    disconnect(agent)
    if not tasks_survive:
        agent._tasks = {key: task for key, task in agent._tasks.items() if key not in agent.machine}
        agent.machine.clear(agent.kernel.now)
        agent._changed()
    agent.kernel.at(agent.kernel.now + down_s, agent.connect)


class MoodyFramework(SimulatedFramework):
    """A framework that answers offers late and declines some at random."""

    rng = Random(0)
    think_s = 0.0
    declines = 0.0
    thinking: dict[OfferId, Offered]

    def take(self, message: ToAgent | ToFramework) -> None:
        if isinstance(message, Rescinded):
            self.thinking.pop(message.offer_id, None)
        super().take(message)

    def closed(self, error: CroupierError | None) -> None:
        self.thinking.clear()
        super().closed(error)

    def _on_offer(self, offer: Offered) -> None:
        if not self.think_s:
            super()._on_offer(offer)
            return
        self.thinking[offer.offer_id] = offer

        def answer() -> None:
            if self.thinking.pop(offer.offer_id, None) is not None:
                super(MoodyFramework, self)._on_offer(offer)

        self.kernel.at(self.kernel.now + self.think_s, answer)

    def _choose(self, agent_id: AgentId, offers: list[Offered]) -> list[Work]:
        if self.declines and self.rng.random() < self.declines:
            return []
        return super()._choose(agent_id, offers)


def moody_framework(
    cluster: SimulatedCluster,
    name: str,
    role: str = "*",
    habits: Habits | None = None,
    works: Iterable[Work] = (),
    on_end: Ended | None = None,
    think_s: float = 0.0,
    declines: float = 0.0,
) -> SimulatedFramework:
    """Connect a framework that answers offers late and declines some at random."""
    made = MoodyFramework(cluster.kernel, name, Role(role), cluster._works, habits, on_end)
    made.rng, made.think_s, made.declines, made.thinking = cluster.rng, think_s, declines, {}
    cluster._present.append(made)
    made.submit(works)
    made.connect()
    return made


@contextmanager
def checked_steps() -> Iterator[None]:
    """Assert every invariant of the master after each step of a simulation within this."""

    def checked(state: State, event: Event, now: float) -> list[Effect]:
        effects = step(state, event, now)
        check_state(state)
        return effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("croupier.sim.kernel.step", checked)
        yield
