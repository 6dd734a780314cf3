"""Features of agents: in offers and lists, from peers, and what demand waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.agent_status import agent_status
from croupier.master.core.effects import SessionId
from croupier.master.core.events import Register
from croupier.master.core.messages import Offered
from croupier.master.wire.to_framework import agent_to_wire
from croupier.model.access import AGENT_USER
from croupier.model.attributes import enforces
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Feature, feature_names
from croupier.model.resources import Resources
from croupier.v1 import agent_pb2
from tests.harness.off_the_wire import report_from_wire
from tests.harness.restarting import ALL, Scene
from tests.harness.world import World


class Enforcing(Scene):
    """A scene whose agent can enforce something."""

    def returns(self, *features: Feature, default_user: str = AGENT_USER) -> None:
        self.host = SessionId(next(self._sessions))
        event = Register(self.host, self.host_id, "host", Resources.parse(ALL), {})
        self.do(replace(event, features=frozenset(features), default_user=default_user))


def test_offers_and_lists_show_features() -> None:
    scene = Enforcing()
    scene.returns(Feature.MEMORY, Feature.CPU_WEIGHT, default_user="daemon")
    offered = [each for each in scene.sent[scene.session] if isinstance(each, Offered)][-1]
    assert list(agent_to_wire(offered.agent).isolation) == ["cpu-weight", "memory"]
    status = agent_status(scene.state, scene.state.agents[scene.host_id], scene.now)
    assert feature_names(status.agent.features) == ["cpu-weight", "memory"]
    assert status.default_user == "daemon"


def test_demand_waits_for_an_agent_that_enforces_it() -> None:
    world = World()
    world.agent("cpus:1", "weak", agent_id="a1", features="memory,users")
    wanted = Demand(Resources.parse("cpus:1"), 1, (enforces("memory", "images"),))
    session = world.framework(demands=(wanted,))
    assert not world.offers(session)
    world.agent("cpus:1", "able", agent_id="a2", features="images,memory,users")
    (offer,) = world.offers(session)
    assert offer.agent.agent_id == "a2"


def test_features_of_a_later_release_are_left_out() -> None:
    wire = agent_pb2.Register(agent_id="a1", hostname="h", isolation=["time-travel", "pids"])
    event = report_from_wire(SessionId(1), agent_pb2.Report(register=wire))
    assert isinstance(event, Register)
    assert (event.features, event.default_user) == (frozenset({Feature.PIDS}), AGENT_USER)


@pytest.mark.parametrize("bad", [{"default_user": "a b"}, {"isolation": ["x"] * 1001}])
def test_hostile_features_are_refused(bad: dict[str, object]) -> None:
    wire = agent_pb2.Register(agent_id="a1", hostname="h", **bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        report_from_wire(SessionId(1), agent_pb2.Report(register=wire))
