"""Single decisions of a service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.apps.job_file.task_spec import TaskSpec
from croupier.apps.service.core import events
from croupier.apps.service.core.decide import KILL_AGAIN_S, decide
from croupier.apps.service.core.instance import Instance, Stop, backoff_s
from croupier.apps.service.core.placement import Room, Template, place
from croupier.apps.service.core.rules import Check, Health, Restart, Rules, Update, Version
from croupier.apps.service.core.state import RolloutState, Service
from croupier.model.errors import Conflict
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskState
from tests.harness.app_engine import status_of
from tests.harness.service_world import apply_status

UNIT = Resources.parse("cpus:1;mem:64MB")
HTTP = Health(Check.HTTP, grace_s=5, interval_s=1, timeout_s=1, failures=2)


class Play:
    """A service whose cluster is the test."""

    def __init__(self, instances: int = 2, health: Health = HTTP, **update: object) -> None:
        made = replace(Update(settle_s=0.0), **update)  # type: ignore[arg-type]
        rules = Rules(instances, restart=Restart(1, 8, 10), unreachable_s=20, update=made)
        self.now, self.health = 100.0, health
        self.service = Service.create("web", "abc", rules, Version(1, "d1", health), self.now)

    def decide(self, seconds: float = 0.0) -> list[str]:
        self.now += seconds
        return decide(self.service, self.now)

    def launch(self) -> list[Instance]:
        """Launch what is wanted, and let it run."""
        self.decide()
        amount = Resources.parse("cpus:50;mem:50GB;ports:[31000-31099]")
        rooms = [Room("o", "a", "host", "a", amount)]
        templates = dict.fromkeys(self.service.versions, Template(TaskSpec(resources=UNIT), 1))
        placed = place(self.service, rooms, templates, self.now)
        made = [instance for instance, _ in placed.get("o", ())]
        for instance in made:
            self.say(instance, TaskState.RUNNING)
        return made

    def say(self, instance: Instance, state: TaskState, reason: Reason = Reason.NONE) -> None:
        status = status_of(state, instance.task_id, reason=reason)
        apply_status(self.service, status, self.now)

    def check(self, instance: Instance, passed: bool) -> None:
        events.on_check(self.service, instance.task_id, passed=passed, text="checked", now=self.now)

    def start(self) -> list[Instance]:
        """Launch all, and let them be healthy."""
        made = self.launch()
        for instance in made:
            self.check(instance, True)
        self.decide()
        assert self.service.rollout.state is RolloutState.DONE
        return made


def test_waits_double_and_have_jitter() -> None:
    restart = Restart(1, 8, 10)
    for failures, bound in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (1000, 8)):
        waits = {backoff_s(restart, failures, f"task-{n}") for n in range(200)}
        assert len(waits) == 200
        assert all(bound / 2 <= wait <= bound for wait in waits)


def test_an_instance_that_ends_is_replaced_after_a_wait_that_grows() -> None:
    play = Play(instances=1)
    (first,) = play.start()
    waits = []
    for _ in range(4):
        play.say(next(iter(play.service.instances.values())), TaskState.FAILED)
        assert not play.launch()
        slot = play.service.slots[0]
        waits.append(slot.not_before - play.now)
        play.decide(waits[-1])
        assert len(play.launch()) == 1
    assert waits[3] >= 4 > 1 >= waits[0]
    # Available for long enough: the waits are short again.
    play.check(next(iter(play.service.instances.values())), True)
    play.decide()
    play.decide(11)
    assert play.service.slots[0].failures == 0
    assert first.task_id not in play.service.instances


@pytest.mark.parametrize(
    ("state", "reason", "failures"),
    [
        (TaskState.FINISHED, Reason.NONE, 1),
        (TaskState.FAILED, Reason.MEMORY_LIMIT, 1),
        (TaskState.ERROR, Reason.TASK_INVALID, 1),
        (TaskState.DROPPED, Reason.TASK_INVALID, 1),
        (TaskState.DROPPED, Reason.AGENT_DISCONNECTED, 0),
        (TaskState.LOST, Reason.AGENT_REMOVED, 0),
        (TaskState.KILLED, Reason.KILLED_BY_OPERATOR, 0),
        (TaskState.FAILED, Reason.PREEMPTED, 0),
        (TaskState.UNKNOWN, Reason.NONE, 0),
    ],
)
def test_only_faults_of_the_instance_count(state: TaskState, reason: Reason, failures: int) -> None:
    play = Play(instances=1)
    (instance,) = play.start()
    play.say(instance, state, reason)
    assert not play.service.instances
    assert play.service.slots[0].failures == failures


def test_failed_checks_in_the_grace_do_not_count() -> None:
    play = Play(instances=1)
    (instance,) = play.launch()
    for _ in range(5):
        play.check(instance, False)
        play.decide(1)
    assert not instance.is_stopping
    play.now += 1
    play.check(instance, False)
    play.check(instance, False)
    assert play.decide() == [instance.task_id]
    assert instance.stop is Stop.UNHEALTHY
    assert not play.decide()
    assert play.decide(KILL_AGAIN_S) == [instance.task_id]


def test_a_fault_of_all_checks_ends_few_at_once() -> None:
    play = Play(instances=5, max_unavailable=2, healthy_within_s=60)
    made = play.start()
    for instance in made * 2:
        play.check(instance, False)
    assert len(play.decide()) == 2
    assert not play.decide(10)
    # One recovers, and the next ones are ended when the first have had their time.
    play.check(made[4], True)
    assert len(play.decide(51)) == 4, "two more, and two that did not end"
    assert not made[4].is_stopping


def test_an_instance_out_of_reach_is_replaced_after_a_while_unless_it_serves() -> None:
    play = Play(instances=2)
    serving, silent = play.start()
    for instance in (serving, silent):
        play.say(instance, TaskState.UNREACHABLE)
    play.check(silent, False)
    play.check(silent, False)
    assert play.decide(1) == [silent.task_id]
    play.decide(100)
    assert not serving.is_stopping
    (new,) = play.launch()
    assert new.slot == silent.slot
    # It comes back: it is ended again, and its place stays with the new one.
    play.say(silent, TaskState.RUNNING)
    assert play.decide(KILL_AGAIN_S) == [silent.task_id]
    assert not new.is_stopping


def test_surge_starts_the_new_instance_first() -> None:
    play = Play(instances=2, max_unavailable=0, surge=1)
    old = play.start()
    events.apply(play.service, play.service.rules, Version(1, "d2", HTTP), play.now)
    assert not play.decide()
    (new,) = play.launch()
    assert not play.decide(1)
    play.check(new, True)
    play.decide()
    (ended,) = [each for each in old if each.is_stopping]
    assert ended.slot == new.slot
    play.say(ended, TaskState.KILLED)
    (second,) = play.launch()
    play.check(second, True)
    play.decide()
    play.say(next(each for each in old if each is not ended), TaskState.KILLED)
    play.decide()
    assert play.service.rollout.state is RolloutState.DONE
    assert play.service.stable == 2


def test_a_paused_update_waits_and_undo_returns() -> None:
    play = Play(instances=3)
    play.start()
    events.apply(play.service, play.service.rules, Version(1, "d2", HTTP), play.now)
    events.pause(play.service, is_paused=True)
    assert not play.decide(1000)
    events.pause(play.service, is_paused=False)
    assert len(play.decide()) == 1
    assert events.undo(play.service, play.now) == 1
    play.say(next(each for each in play.service.instances.values() if each.stop), TaskState.KILLED)
    (new,) = play.launch()
    assert new.version == 1
    play.check(new, True)
    play.decide()
    assert play.service.rollout.state is RolloutState.ROLLED_BACK
    with pytest.raises(Conflict):
        events.pause(play.service, is_paused=True)
    with pytest.raises(Conflict):
        events.undo(play.service, play.now)


def test_time_without_a_master_does_not_end_an_update() -> None:
    play = Play(instances=1, healthy_within_s=30)
    (old,) = play.start()
    events.apply(play.service, play.service.rules, Version(1, "d2", HTTP), play.now)
    play.decide()
    play.say(old, TaskState.KILLED)
    for _ in range(100):
        play.now += 1
        decide(play.service, play.now, is_connected=False)
    assert play.service.target == 2
    play.decide(31)
    assert play.service.target == 1
    assert play.service.rollout.state is RolloutState.ROLLING_BACK


def test_without_rollback_the_update_stops() -> None:
    play = Play(instances=3, failures=1, rolls_back=False)
    old = play.start()
    events.apply(play.service, play.service.rules, Version(1, "d2", HTTP), play.now)
    play.decide()
    (ended,) = [each for each in old if each.is_stopping]
    play.say(ended, TaskState.KILLED)
    (new,) = play.launch()
    play.say(new, TaskState.FAILED)
    play.decide(5)
    assert play.service.rollout.state is RolloutState.FAILED
    assert play.service.target == 2
    assert sum(not each.is_stopping for each in old) == 2
    # What runs again in the end is counted.
    (again,) = play.launch()
    play.check(again, True)
    play.decide(100)
    assert sum(not each.is_stopping for each in old) == 2
