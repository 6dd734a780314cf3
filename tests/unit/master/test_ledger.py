"""The ledger of tasks: accepted tasks survive failover, and run once."""

from __future__ import annotations

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import Deposed, Happened, SessionId
from croupier.master.core.events import AgentStopped, Claim, FrameworkCalled, Received, Register
from croupier.master.core.facts import AgentRefused
from croupier.master.core.messages import Offered
from croupier.master.core.records import ForgetTask, FrameworkRecord, TaskRecord
from croupier.master.core.settings import Settings
from croupier.model.agent_orders import AcknowledgeUpdate, LaunchTask, ResendUpdates
from croupier.model.errors import Conflict, FailedOver, NotLeader
from croupier.model.ids import AgentId, OfferId
from croupier.model.resources import Resources
from croupier.model.task import MASTER_SEQUENCE, TaskState
from croupier.model.verdict import Verdict
from tests.harness.restarting import ALL, T1, Scene
from tests.harness.world import CLUSTER, make_task


def test_an_accept_is_in_the_ledger_before_its_verdict() -> None:
    scene = Scene()
    scene.launch(make_task("t1"), make_task("t2"))
    assert [(r.task_id, r.client_id, r.seq) for r in scene.records] == [
        ("t1", "c1", 1),
        ("t2", "c1", 1),
    ]


def test_repeated_accept_is_answered_from_the_ledger_by_the_next_master() -> None:
    scene = Scene()
    offer = scene.offers(scene.session)[0].offer_id
    call = calls.Accept((offer,), (make_task("t1"), make_task("t2", "cpus:9")))
    scene.call(scene.session, call, 5)
    scene.restart()
    scene.agent_back(TaskState.STARTING, waiting=1)
    scene.framework_back()
    verdict = scene.call(scene.session, call, 5)
    assert verdict.error is None
    assert [type(v.error) for v in verdict.tasks] == [type(None), Conflict]
    assert scene.launches(scene.host) == []
    # The same number in another run of the program is a different call.
    scene.framework_back("c2")
    assert isinstance(scene.call(scene.session, call, 5).error, Conflict)


def test_offers_of_an_earlier_master_are_ended() -> None:
    scene = Scene()
    offer = scene.offers(scene.session)[0].offer_id
    scene.restart()
    scene.framework_back()
    verdict = scene.call(scene.session, calls.Accept((offer,), (make_task("t1"),)), 1)
    assert isinstance(verdict.error, Conflict)
    assert scene.call(scene.session, calls.Decline((offer,)), 2).error is None
    never = OfferId(f"{CLUSTER}-9-O1")
    assert not isinstance(scene.call(scene.session, calls.Decline((never,)), 3).error, Conflict)


def test_acknowledged_task_is_retained_until_its_verdict_is_seen() -> None:
    scene = Scene()
    scene.launch()
    scene.finish(scene.host, scene.owner, "t1")
    scene.acknowledge(2, seq=2)
    # The verdict may have been lost, so the ACCEPT may be repeated to any master.
    assert scene.records[-1].is_acknowledged
    call = calls.Accept((OfferId(f"{CLUSTER}-1-O1"),), (make_task("t1"),))
    scene.restart()
    scene.framework_back()
    scene.agent_back()
    assert scene.launches(scene.host) == []
    verdict = scene.call(scene.session, call, 1)
    assert [v.error for v in verdict.tasks] == [None]
    scene.do(Received(scene.session, 2))
    assert scene.saved[-1] == ForgetTask(scene.owner, T1)


def test_acknowledged_task_with_a_seen_verdict_is_forgotten_at_once() -> None:
    scene = Scene()
    scene.launch()
    scene.do(Received(scene.session, 1))
    scene.finish(scene.host, scene.owner, "t1")
    scene.acknowledge(2, seq=2)
    assert scene.saved[-1] == ForgetTask(scene.owner, T1)


@pytest.mark.parametrize("framework_first", [True, False])
def test_end_is_sent_when_the_ledger_was_lost(framework_first: bool) -> None:
    scene = Scene()
    scene.launch()
    scene.saved.clear()
    scene.ledger.clear()
    scene.restart()
    if framework_first:
        scene.framework_back()
    scene.agent_back(TaskState.RUNNING, TaskState.FINISHED, waiting=1)
    scene.framework_back()
    # Its agent resends it on request.
    scene.report(scene.host, scene.owner, "t1", TaskState.FINISHED, 2)
    assert scene.task_updates()[-1].state is TaskState.FINISHED
    scene.acknowledge(2, seq=7)
    assert scene.saved[-1] == ForgetTask(scene.owner, T1)


def test_frameworks_get_time_to_reconnect_after_failover() -> None:
    scene = Scene()
    session = scene.framework(name="brief", failover_timeout_s=0.0)
    brief = scene.framework_id(session)
    scene.restart()
    scene.pass_time(scene.state.settings.agent_timeout_s - 1.0)
    session = scene.framework(framework_id=brief, failover_timeout_s=0.0)
    assert scene.framework_id(session) == brief
    scene.restart()
    scene.pass_time(scene.state.settings.agent_timeout_s + 1.0)
    assert brief not in scene.state.frameworks


def test_each_run_of_a_program_has_its_own_epoch() -> None:
    scene = Scene()
    scene.launch()
    scene.framework_back("c2")
    scene.restart()
    scene.framework_back("c2")
    scene.framework_back("c3")
    scene.agent_back()
    (launch,) = [m for m in scene.sent[scene.host] if isinstance(m, LaunchTask)]
    assert launch.framework_epoch == 3
    epochs = [r.epoch for r in scene.saved if isinstance(r, FrameworkRecord)]
    assert epochs == [1, 2, 3]


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


@pytest.mark.parametrize("seq", [1, 2])
def test_repeated_call_is_answered_without_effect(seq: int) -> None:
    scene = Scene()
    offers = [m for m in scene.sent[scene.session] if isinstance(m, Offered)]
    call = calls.Accept((offers[0].offer_id,), (make_task("t1"),))
    for _ in range(2):
        scene.do(FrameworkCalled(scene.session, seq, call))
    verdicts = [m for m in scene.sent[scene.session] if isinstance(m, Verdict)]
    assert verdicts[0] == verdicts[1]
    assert len(scene.launches(scene.host)) == 1


def test_acknowledged_end_is_not_resent_when_the_acknowledgement_was_lost() -> None:
    scene = Scene()
    scene.launch()
    ends = (TaskState.RUNNING, TaskState.FINISHED)
    scene.agent_back(*ends, waiting=1)
    scene.acknowledge(2, 2)
    scene.restart()
    scene.framework_back("c2")
    scene.agent_back(*ends, waiting=1)
    assert scene.task_updates() == []
    acknowledged = [m for m in scene.sent[scene.host] if isinstance(m, AcknowledgeUpdate)]
    assert acknowledged == [AcknowledgeUpdate(scene.owner, T1, 2)]
    assert not scene.state.frameworks[scene.owner].tasks


def test_reconcile_does_not_guess_what_an_absent_agent_reports() -> None:
    scene = Scene()
    scene.launch()
    scene.end_session(scene.session)
    scene.end_session(scene.host)
    scene.pass_time(200.0)
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED, waiting=3)
    scene.framework_back()
    assert scene.task_updates() == []
    assert ResendUpdates(scene.owner) in scene.sent[scene.host]


def test_end_made_by_the_master_does_not_wait_for_earlier_updates() -> None:
    scene = Scene()
    scene.launch()
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED, waiting=3)
    # The first update was not acknowledged, so later ones wait until it is resent.
    scene.do(AgentStopped(scene.host, "bye"))
    scene.pass_time(Settings().resend_s)
    assert [(s.state, s.sequence) for s in scene.task_updates()][3:] == [
        (TaskState.FINISHED, MASTER_SEQUENCE)
    ]
    scene.acknowledge(MASTER_SEQUENCE, 2)
    assert not scene.state.frameworks[scene.owner].tasks


def test_updates_are_sent_in_order_after_a_reconnect() -> None:
    scene = Scene()
    scene.launch()
    scene.end_session(scene.session)
    scene.report(scene.host, scene.owner, T1, TaskState.STARTING, 1)
    scene.report(scene.host, scene.owner, T1, TaskState.RUNNING, 2)
    scene.framework_back()
    # The agent sent this before it was ordered to resend all.
    scene.report(scene.host, scene.owner, T1, TaskState.FINISHED, 3)
    assert scene.task_updates() == []
    for number, state in enumerate(
        (TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED), start=1
    ):
        scene.report(scene.host, scene.owner, T1, state, number)
    assert [s.sequence for s in scene.task_updates()] == [1, 2, 3]


def test_earlier_run_never_takes_over_from_a_later_one() -> None:
    scene = Scene()
    scene.end_session(scene.session)
    scene.framework_back("c2")
    newer = scene.session
    scene.framework_back("c1")
    assert isinstance(scene.closed[scene.session], FailedOver)
    assert newer in scene.state.peers
    scene.restart()
    scene.framework_back("c1")
    assert isinstance(scene.closed[scene.session], FailedOver)
    scene.framework_back("c2")
    assert scene.session in scene.state.peers


@pytest.mark.parametrize("claim", [Claim.SILENT, Claim.GIVEN_UP])
def test_end_of_a_task_that_the_ledger_may_have_lost_is_sent(claim: Claim) -> None:
    scene = Scene()
    scene.launch()
    scene.saved = [r for r in scene.saved if not isinstance(r, TaskRecord)]
    scene.ledger.clear()
    scene.restart()
    scene.framework_back()
    scene.agent_back(TaskState.RUNNING, TaskState.FINISHED, waiting=1, claim=claim)
    assert [status.state for status in scene.task_updates()] == [TaskState.FINISHED]
    scene.acknowledge(2, seq=9)
    assert not scene.state.frameworks[scene.owner].tasks


def test_unlisted_task_is_gone_when_the_store_is_an_old_copy() -> None:
    scene = Scene()
    scene.launch()
    scene.restart()
    scene.framework_back()
    scene.agent_back(claim=Claim.GIVEN_UP)
    assert scene.launches(scene.host) == []
    assert [status.state for status in scene.task_updates()] == [TaskState.GONE]
