"""Usage is counted by the core, stored in steps, and continued by the next master."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.core import calls
from croupier.master.core.calls import MakeHold
from croupier.master.core.effects import Answer, Save, SessionId
from croupier.master.core.events import AccountingDue, AgentTask, Read
from croupier.master.core.hold_commands import CreateHold
from croupier.master.core.step import step
from croupier.master.core.usage_buckets import DAY_MS, HOUR_MS, MAX_HOURS, Account
from croupier.master.core.usage_records import ForgetUsage, UsageRecord
from croupier.master.services.usage import usage_query
from croupier.master.store.rows import decode, encode
from croupier.model.ids import AgentId, HoldId, Role
from croupier.model.isolation import Usage
from croupier.model.limits import MIB
from croupier.model.principal import ANONYMOUS
from croupier.model.resources import Resources
from croupier.model.task import TaskState, TaskStatus
from croupier.v1 import operator_pb2 as pb
from tests.harness.world import World, make_task

# 2026-11-27 12:00 UTC.
NOON = 1_795_780_800_000
ADS = Role("ads")


def account(world: World) -> list[UsageRecord | ForgetUsage]:
    """End an accounting step; return what was stored."""
    effects = world.do(AccountingDue(wall_ms(world)))
    records = [effect.record for effect in effects if isinstance(effect, Save)]
    return [each for each in records if isinstance(each, UsageRecord | ForgetUsage)]


def wall_ms(world: World) -> int:
    return NOON + round(world.now * 1000)


def used(world: World, account: Account, name: str = "cpus") -> int:
    """Return what an account has used in all buckets, in thousandths times milliseconds."""
    buckets = world.state.usage.buckets_now(wall_ms(world))
    return sum(
        each.accounts[account].used.get(name, 0) for each in buckets if account in each.accounts
    )


def view(world: World, by: int = pb.USAGE_BY_ROLE, since_ms: int = 0) -> pb.GetUsageResponse:
    """Return what an operator is shown."""
    request = pb.GetUsageRequest(by=pb.UsageBy.ValueType(by), since_ms=since_ms)
    (answer,) = step(
        world.state, Read(1, usage_query(request, wall_ms(world), ANONYMOUS)), world.now
    )
    assert isinstance(answer, Answer)
    assert isinstance(answer.result, pb.GetUsageResponse), answer.result
    return answer.result


def return_with(world: World, *task_ids: str) -> SessionId:
    """Register the agent again, with these tasks."""
    (framework,) = world.state.frameworks.values()
    tasks = []
    for task_id in task_ids:
        task = framework.tasks[make_task(task_id).task_id]
        status = TaskStatus(
            framework.framework_id, task.task_id, task.agent_id, TaskState.RUNNING, sequence=1
        )
        tasks.append(AgentTask(framework.framework_id, task.info, status, (status,), task.role))
    return world.agent("cpus:4;mem:8GB", agent_id="a1", tasks=tuple(tasks))


def test_a_task_counts_from_its_launch_to_its_end_and_offers_while_they_are_out() -> None:
    world = World()
    agent = world.agent("cpus:4;mem:8GB", agent_id="a1")
    framework = world.framework("ads/prod", name="serve")
    world.now = 5.0
    task = replace(make_task("t1", "cpus:2;mem:1GB"), labels=(("cost-center", "team-1"),))
    world.accept(framework, task)
    world.now = 65.0
    world.finish(agent, world.framework_id(framework), "t1")
    world.now = 100.0
    account(world)

    serve = Account(Role("ads/prod"), "serve", "", "team-1")
    assert used(world, serve) == 2_000 * 60_000
    wire = view(world)
    assert [each.name for each in wire.usage] == ["ads", "ads/prod"]
    assert [each.used["cpus"] for each in wire.usage] == [120.0, 120.0]
    # The agent was offered whole for 5 s; later nobody accepted what was left.
    assert wire.usage[0].offered["cpus"] >= 20.0
    assert wire.capacity == {"cpus": 400.0, "mem": 100.0 * 8 * 1024}
    assert wire.counted_s == 100.0
    assert wire.usage[0].share_s == 30.0
    assert wire.usage[0].share == 0.3
    assert [each.name for each in view(world, pb.USAGE_BY_LABEL).usage] == ["team-1", ""]
    assert [each.name for each in view(world, pb.USAGE_BY_FRAMEWORK).usage] == ["serve"]
    assert view(world, since_ms=NOON + HOUR_MS).usage == []


def test_what_has_come_together_since_the_last_step_is_shown() -> None:
    world = World()
    world.agent("cpus:4;mem:8GB")
    world.accept(world.framework("ads"), make_task("t1", "cpus:1;mem:1GB"))
    world.now = 30.0
    account(world)
    world.now = 40.0
    assert view(world).usage[0].used["cpus"] == 40.0


def test_the_idle_part_of_a_hold_is_counted_for_its_role() -> None:
    world = World()
    world.agent("cpus:4;mem:8GB", agent_id="a1")
    wanted = MakeHold(HoldId("h1"), Resources.parse("cpus:3;mem:3GB"))
    world.do(CreateHold(1, "a1", ADS, wanted))
    world.now = 10.0
    submitter = world.framework("ads", name="train", suppressed=True)
    world.call(submitter, calls.Submit((make_task("t1", "cpus:1;mem:1GB"),), ADS))
    world.now = 20.0
    account(world)
    role = view(world).usage[0]
    task = world.state.frameworks[world.framework_id(submitter)].tasks[make_task("t1").task_id]
    assert task.held, "it runs in the hold"
    assert role.held["cpus"] == 3 * 10 + 2 * 10
    assert role.used["cpus"] == 10


def test_an_idle_cluster_stores_only_its_capacity() -> None:
    world = World()
    world.agent("cpus:4;mem:8GB")
    world.now = 60.0
    (record,) = account(world)
    assert isinstance(record, UsageRecord)
    assert record.role == ""
    assert record.counted_ms == 60_000
    assert record.closed_ms == NOON + 60_000
    assert decode("usage", encode(record).body or b"") == record


def test_the_next_master_counts_on_without_a_gap() -> None:
    world = World()
    world.agent("cpus:4;mem:8GB", agent_id="a1")
    framework = world.framework("ads")
    world.accept(framework, make_task("t1", "cpus:1;mem:1GB"))
    world.now = 60.0
    account(world)
    world.now = 90.0
    world.restart()
    world.now = 95.0
    return_with(world, "t1")
    world.now = 120.0
    account(world)
    assert used(world, Account(ADS, "f")) == 1_000 * 120_000
    assert view(world).counted_s == 120.0


def test_a_day_of_old_hours_is_stored_as_a_day_in_the_same_commit() -> None:
    world = World()
    world.agent("cpus:4;mem:8GB")
    world.accept(world.framework("ads"), make_task("t1", "cpus:1;mem:1GB"))
    rows: list[UsageRecord | ForgetUsage] = []
    for hour in range(1, MAX_HOURS + 3):
        world.now = 3600.0 * hour
        rows = account(world)
    days = [each for each in rows if isinstance(each, UsageRecord) and each.length_ms == DAY_MS]
    gone = [each for each in rows if isinstance(each, ForgetUsage)]
    assert {(each.role, each.length_ms) for each in gone} == {("", HOUR_MS), ("ads", HOUR_MS)}
    assert {each.role for each in days} == {"", "ads"}
    total = used(world, Account(ADS, "f"))
    assert total == 1_000 * wall_ms(world) - 1_000 * NOON
    world.restart()
    assert used(world, Account(ADS, "f")) == total


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["launch", "end", "account", "account", "kill"]), st.integers(0, 90)
        ),
        max_size=20,
    )
)
def test_a_kill_loses_or_adds_at_most_one_step(steps: list[tuple[str, int]]) -> None:
    world = World()
    agent = world.agent("cpus:4;mem:8GB", agent_id="a1")
    session = world.framework("ads", suppressed=True)
    running: list[str] = []
    true_ms, error_ms, closed_at = 0, 0, 0.0
    # Ends that were measured: all, those since the last step, and those that a kill may have lost.
    measured, latest, lost = 0, 0, 0
    for number, (what, pause_s) in enumerate([*steps, ("account", 1)]):
        true_ms += len(running) * 1_000 * pause_s * 1000
        world.now += pause_s
        if what == "launch" and len(running) < 4:
            running.append(f"t{number}")
            world.call(session, calls.Submit((make_task(running[-1], "cpus:1;mem:1GB"),), ADS))
        elif what == "end" and running:
            ended = running.pop()
            owner, usage = world.framework_id(session), Usage(7, MIB, run_ms=1)
            world.report(agent, owner, ended, TaskState.RUNNING, 1)
            world.report(agent, owner, ended, TaskState.FINISHED, 2, usage=usage)
            measured, latest = measured + 1, latest + 1
            # So the next master does not know it.
            update = (AgentId("a1"), make_task(ended).task_id, 2)
            world.call(session, calls.Acknowledge((update,)))
        elif what == "account":
            account(world)
            closed_at, latest = world.now, 0
        elif what == "kill":
            # At most four tasks may have begun, or ended, since the last step.
            error_ms += 4 * 1_000 * round((world.now - closed_at) * 1000)
            framework_id = world.framework_id(session)
            lost, latest = lost + latest, 0
            world.restart()
            session = world.framework(
                "ads", framework_id=framework_id, client_id=f"c{number + 2}", suppressed=True
            )
            agent = return_with(world, *running)
    counted = used(world, Account(ADS, "f"))
    assert abs(counted - true_ms) <= error_ms
    assert error_ms or counted == true_ms
    buckets = world.state.usage.buckets_now(wall_ms(world))
    sums = [each.accounts[Account(ADS, "f")] for each in buckets if each.accounts]
    found = sum(each.measured.get("cpus", 0) for each in sums) // 7_000
    assert found == measured - lost
