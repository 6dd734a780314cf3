"""Masters that were deposed, and removals; `scenarios/failover` tells what survives a failover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import Deposed, Happened, SessionId
from croupier.master.core.events import Claim, Register
from croupier.master.core.facts import AgentRefused
from croupier.master.core.records import task_key
from croupier.master.core.settings import Settings
from croupier.model.errors import Conflict, NotLeader
from croupier.model.ids import AgentId
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskState
from tests.harness.restarting import ALL, T1, Scene
from tests.harness.world import World, make_task


def test_master_that_learns_of_a_newer_one_is_deposed() -> None:
    scene = Scene()
    agent_id, total = AgentId("A9"), Resources.parse(ALL)
    register = Register(SessionId(99), agent_id, "h", total, {}, claim=Claim.NEWER)
    effects = scene.do(register)
    assert any(isinstance(effect, Deposed) for effect in effects)
    assert agent_id not in scene.state.agents
    assert isinstance(scene.closed.get(SessionId(99)), NotLeader)


@pytest.mark.parametrize("claim", [Claim.UNPROVEN, Claim.FOREIGN])
def test_unproven_claim_does_not_depose_the_master(claim: Claim) -> None:
    scene = Scene()
    agent_id, total = AgentId("A9"), Resources.parse(ALL)
    register = Register(SessionId(99), agent_id, "h", total, {}, claim=claim, objection="because")
    effects = scene.do(register)
    refused = AgentRefused(agent_id, "h", "because")
    assert not any(isinstance(effect, Deposed) for effect in effects)
    assert Happened(refused) in effects
    assert agent_id not in scene.state.agents
    assert isinstance(scene.closed.get(SessionId(99)), Conflict)


def test_rate_limit_of_removals_tolerates_rounding() -> None:
    settings = replace(Settings(), removals=1, removal_window_s=0.1)
    world = World(settings=settings)
    # In floats, 7.7 + 0.1 - 0.1 is less than 7.7.
    world.now = 7.7 - (settings.agent_timeout_s - settings.suspect_s)
    for number in range(3):
        world.end_session(world.agent(ALL, f"h{number}"))
    world.pass_time(200.0)
    assert len(world.state.unreachable) == 3


def test_a_task_that_an_older_store_has_lined_up_elsewhere_is_lost_once_it_is_listed() -> None:
    scene = Scene()
    scene.call(scene.session, calls.Submit((make_task("t1", "cpus:9"),)))
    other = scene.agent_id(scene.agent(ALL, "other"))
    # In the store it is lined up there; later it ran on the first agent, which the store has lost.
    key = task_key(scene.owner, T1)
    scene.ledger[key] = replace(scene.ledger[key], agent_id=other)
    scene.saved.append(scene.ledger[key])
    scene.restart()
    scene.framework_back()
    scene.agent_back(TaskState.RUNNING, TaskState.FINISHED, waiting=1, claim=Claim.GIVEN_UP)
    (status,) = scene.task_updates()
    assert (status.state, status.reason) == (TaskState.LOST, Reason.TASK_UNKNOWN)
    scene.agent(ALL, "other", agent_id=other)
    assert not scene.state.agents[other].line
