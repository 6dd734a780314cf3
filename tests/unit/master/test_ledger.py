"""The ledger of tasks: what was accepted outlives the master, and is done once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import Deposed, Happened, SessionId
from croupier.master.core.events import AgentStopped, Claim, FrameworkCalled, Heard, Register
from croupier.master.core.facts import AgentRefused
from croupier.master.core.messages import Offered
from croupier.master.core.records import ForgetTask, FrameworkRecord, TaskRecord
from croupier.master.core.settings import Settings
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask, ResendUpdates
from croupier.model.errors import Conflict, FailedOver, NotLeader
from croupier.model.ids import AgentId, OfferId
from croupier.model.resources import Resources
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState
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


def test_what_never_arrived_is_launched_again_and_holds_its_room() -> None:
    scene = Scene()
    scene.launch()
    scene.restart()
    scene.agent_back()
    assert [task.task_id for task in scene.launches(scene.host)] == ["t1"]
    assert str(scene.state.used(scene.state.agents[scene.host_id])) == "cpus:1;mem:1GB"


def test_what_arrived_is_not_launched_again() -> None:
    scene = Scene()
    scene.launch()
    scene.restart()
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    assert scene.launches(scene.host) == []
    task = scene.state.frameworks[scene.owner].tasks[T1]
    assert (task.state, task.sequence, task.is_active) == (TaskState.RUNNING, 2, True)


def test_a_task_that_ran_before_is_gone_if_its_agent_returns_without_it() -> None:
    scene = Scene()
    scene.launch()
    scene.restart()
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    scene.framework_back()
    scene.end_session(scene.host)
    scene.agent_back()
    assert scene.launches(scene.host) == []
    assert [s.state for s in scene.told()] == [TaskState.GONE]


def test_an_agent_that_has_lost_records_is_not_given_a_task_twice() -> None:
    scene = Scene()
    scene.launch()
    scene.restart()
    scene.framework_back()
    scene.agent_back(incomplete=True)
    assert scene.launches(scene.host) == []
    assert [(s.state, s.sequence) for s in scene.told()] == [(TaskState.GONE, MASTER_SEQUENCE)]


def test_what_is_not_decided_is_said_to_be_unknown_and_until_when() -> None:
    scene = Scene()
    scene.launch()
    scene.restart()
    scene.framework_back()
    scene.pass_time(30.0)
    scene.call(scene.session, calls.Reconcile((T1,)), 7)
    (status,) = scene.told()
    assert (status.state, status.decided_in_s) == (TaskState.UNKNOWN, 570.0)
    scene.pass_time(570.0)
    scene.framework_back()
    assert scene.told()[-1].state is TaskState.UNREACHABLE


def test_an_accept_that_is_sent_again_to_the_next_master_is_answered_from_the_ledger() -> None:
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
    # The same number in another run of the program is another call.
    scene.framework_back("c2")
    assert isinstance(scene.call(scene.session, call, 5).error, Conflict)


def test_offers_of_an_earlier_master_have_ended() -> None:
    scene = Scene()
    offer = scene.offers(scene.session)[0].offer_id
    scene.restart()
    scene.framework_back()
    verdict = scene.call(scene.session, calls.Accept((offer,), (make_task("t1"),)), 1)
    assert isinstance(verdict.error, Conflict)
    assert scene.call(scene.session, calls.Decline((offer,)), 2).error is None
    never = OfferId(f"{CLUSTER}-9-O1")
    assert not isinstance(scene.call(scene.session, calls.Decline((never,)), 3).error, Conflict)


def test_an_end_is_forgotten_once_it_is_acknowledged_and_the_verdict_has_arrived() -> None:
    scene = Scene()
    scene.launch()
    scene.finish(scene.host, scene.owner, "t1")
    scene.acknowledge(2, seq=2)
    # The verdict may have been lost: the ACCEPT may come again, to any master.
    assert scene.records[-1].is_acknowledged
    call = calls.Accept((OfferId(f"{CLUSTER}-1-O1"),), (make_task("t1"),))
    scene.restart()
    scene.framework_back()
    scene.agent_back()
    assert scene.launches(scene.host) == []
    verdict = scene.call(scene.session, call, 1)
    assert [v.error for v in verdict.tasks] == [None]
    scene.do(Heard(scene.session, 2))
    assert scene.saved[-1] == ForgetTask(scene.owner, T1)


def test_an_end_whose_verdict_has_arrived_is_forgotten_at_once() -> None:
    scene = Scene()
    scene.launch()
    scene.do(Heard(scene.session, 1))
    scene.finish(scene.host, scene.owner, "t1")
    scene.acknowledge(2, seq=2)
    assert scene.saved[-1] == ForgetTask(scene.owner, T1)


@pytest.mark.parametrize("framework_first", [True, False])
def test_an_end_is_told_where_the_ledger_was_lost(framework_first: bool) -> None:
    scene = Scene()
    scene.launch()
    scene.saved.clear()
    scene.ledger.clear()
    scene.restart()
    if framework_first:
        scene.framework_back()
    scene.agent_back(TaskState.RUNNING, TaskState.FINISHED, waiting=1)
    scene.framework_back()
    # Its agent tells it again when asked to.
    scene.report(scene.host, scene.owner, "t1", TaskState.FINISHED, 2)
    assert scene.told()[-1].state is TaskState.FINISHED
    scene.acknowledge(2, seq=7)
    assert scene.saved[-1] == ForgetTask(scene.owner, T1)


def test_a_kill_outlives_the_master() -> None:
    scene = Scene()
    scene.launch()
    scene.call(scene.session, calls.Kill(T1, 500), 2)
    scene.restart()
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    kills = [m for m in scene.sent[scene.host] if isinstance(m, KillTask)]
    assert [(k.task_id, k.grace_ms, k.reason) for k in kills] == [
        ("t1", 500, Reason.KILLED_BY_FRAMEWORK)
    ]


def test_an_end_that_the_master_makes_is_told_until_acknowledged() -> None:
    scene = Scene()
    scene.launch()
    scene.call(scene.session, calls.Kill(T1, None), 2)
    scene.restart()
    scene.agent_back()
    assert scene.launches(scene.host) == []
    scene.restart()
    scene.framework_back()
    assert [(s.state, s.sequence) for s in scene.told()] == [(TaskState.KILLED, MASTER_SEQUENCE)]
    scene.pass_time(10.0)
    assert len(scene.told()) == 2
    scene.acknowledge(MASTER_SEQUENCE, seq=3)
    scene.pass_time(30.0)
    assert len(scene.told()) == 2
    assert not scene.state.frameworks[scene.owner].tasks


def test_a_task_that_no_longer_fits_its_agent_is_dropped() -> None:
    scene = Scene()
    scene.launch(make_task("t1", "cpus:3;mem:1GB"))
    scene.restart()
    scene.framework_back()
    scene.host = scene.agent("cpus:2;mem:4GB", agent_id=scene.host_id)
    assert scene.launches(scene.host) == []
    assert [s.state for s in scene.told()] == [TaskState.DROPPED]


def test_what_a_framework_missed_while_it_was_away_is_told_when_it_returns() -> None:
    scene = Scene()
    scene.launch()
    scene.end_session(scene.session)
    scene.end_session(scene.host)
    scene.pass_time(80.0)
    scene.framework_back()
    assert [s.state for s in scene.told()] == [TaskState.UNREACHABLE]


def test_the_tasks_of_a_removed_framework_end_under_the_next_master_too() -> None:
    scene = Scene()
    scene.launch()
    scene.call(scene.session, calls.Teardown(), 2)
    scene.restart()
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    assert any(isinstance(m, KillTask) for m in scene.sent[scene.host])
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 3)
    assert scene.saved[-1] == ForgetTask(scene.owner, T1)
    assert scene.owner not in scene.state.frameworks


def test_a_framework_that_may_not_be_away_is_given_time_to_find_the_next_master() -> None:
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


def test_each_run_of_a_program_has_an_epoch_of_its_own() -> None:
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


def test_who_never_acknowledges_launches_no_more() -> None:
    scene = Scene(replace(Settings(), unacknowledged=1))
    scene.launch()
    scene.finish(scene.host, scene.owner, "t1")
    offers = [offer.offer_id for offer in scene.offers(scene.session)]
    verdict = scene.accept(scene.session, make_task("t2"), offers=offers[:1])
    assert "acknowledgement" in str(verdict.tasks[0].error)
    scene.acknowledge(2, seq=9)
    scene.pass_time(10.0)
    offers = [offer.offer_id for offer in scene.offers(scene.session)]
    call = calls.Accept((offers[0],), (make_task("t3"),))
    assert scene.call(scene.session, call, 10).tasks[0].error is None


def test_a_master_that_reads_of_a_newer_one_leads_no_more() -> None:
    scene = Scene()
    agent_id, total = AgentId("A9"), Resources.parse(ALL)
    register = Register(SessionId(99), agent_id, "h", total, {}, claim=Claim.NEWER)
    effects = scene.do(register)
    assert any(isinstance(effect, Deposed) for effect in effects)
    assert agent_id not in scene.state.agents
    assert isinstance(scene.closed.get(SessionId(99)), NotLeader)


@pytest.mark.parametrize("claim", [Claim.UNPROVEN, Claim.FOREIGN])
def test_a_claim_that_is_not_proven_deposes_nobody(claim: Claim) -> None:
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
def test_a_call_that_is_answered_again_is_not_done_again(seq: int) -> None:
    scene = Scene()
    offers = [m for m in scene.sent[scene.session] if isinstance(m, Offered)]
    call = calls.Accept((offers[0].offer_id,), (make_task("t1"),))
    for _ in range(2):
        scene.do(FrameworkCalled(scene.session, seq, call))
    verdicts = [m for m in scene.sent[scene.session] if isinstance(m, Verdict)]
    assert verdicts[0] == verdicts[1]
    assert len(scene.launches(scene.host)) == 1


def test_an_end_that_was_acknowledged_is_not_told_again_though_its_agent_did_not_hear_of_it() -> (
    None
):
    scene = Scene()
    scene.launch()
    ends = (TaskState.RUNNING, TaskState.FINISHED)
    scene.agent_back(*ends, waiting=1)
    scene.acknowledge(2, 2)
    scene.restart()
    scene.framework_back("c2")
    scene.agent_back(*ends, waiting=1)
    assert scene.told() == []
    told = [m for m in scene.sent[scene.host] if isinstance(m, AcknowledgeUpdate)]
    assert told == [AcknowledgeUpdate(scene.owner, T1, 2)]
    assert not scene.state.frameworks[scene.owner].tasks


def test_what_a_returned_agent_tells_is_not_told_before_it_does() -> None:
    scene = Scene()
    scene.launch()
    scene.end_session(scene.session)
    scene.end_session(scene.host)
    scene.pass_time(200.0)
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED, waiting=3)
    scene.framework_back()
    assert scene.told() == []
    assert ResendUpdates(scene.owner) in scene.sent[scene.host]


def test_an_end_told_for_want_of_an_agent_waits_for_nothing_that_came_before() -> None:
    scene = Scene()
    scene.launch()
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED, waiting=3)
    # The handler of the first update failed; what comes after that waits until it comes again.
    scene.do(AgentStopped(scene.host, "bye"))
    scene.pass_time(Settings().resend_s)
    assert [(s.state, s.sequence) for s in scene.told()][3:] == [
        (TaskState.FINISHED, MASTER_SEQUENCE)
    ]
    scene.acknowledge(MASTER_SEQUENCE, 2)
    assert not scene.state.frameworks[scene.owner].tasks


def test_updates_are_told_in_order_to_a_framework_that_was_away_for_some() -> None:
    scene = Scene()
    scene.launch()
    scene.end_session(scene.session)
    scene.report(scene.host, scene.owner, T1, TaskState.STARTING, 1)
    scene.report(scene.host, scene.owner, T1, TaskState.RUNNING, 2)
    scene.framework_back()
    # Sent before the agent was asked to send all again.
    scene.report(scene.host, scene.owner, T1, TaskState.FINISHED, 3)
    assert scene.told() == []
    for number, state in enumerate(
        (TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED), start=1
    ):
        scene.report(scene.host, scene.owner, T1, state, number)
    assert [s.sequence for s in scene.told()] == [1, 2, 3]


def test_an_older_run_of_a_program_never_takes_over_from_a_newer_one() -> None:
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
def test_an_end_is_told_of_a_task_that_the_ledger_may_have_lost(claim: Claim) -> None:
    scene = Scene()
    scene.launch()
    scene.saved = [r for r in scene.saved if not isinstance(r, TaskRecord)]
    scene.ledger.clear()
    scene.restart()
    scene.framework_back()
    scene.agent_back(TaskState.RUNNING, TaskState.FINISHED, waiting=1, claim=claim)
    assert [status.state for status in scene.told()] == [TaskState.FINISHED]
    scene.acknowledge(2, seq=9)
    assert not scene.state.frameworks[scene.owner].tasks


def test_a_task_that_its_agent_may_have_run_since_the_store_was_copied_is_gone() -> None:
    scene = Scene()
    scene.launch()
    scene.restart()
    scene.framework_back()
    scene.agent_back(claim=Claim.GIVEN_UP)
    assert scene.launches(scene.host) == []
    assert [status.state for status in scene.told()] == [TaskState.GONE]
