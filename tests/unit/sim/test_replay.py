"""Replaying a log."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from croupier.ctl.commands.replay import print_found
from croupier.lab.cluster import SimulatedCluster
from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.allocator.queue import ORDERS
from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core import calls
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.events import AgentTask, TimePassed
from croupier.master.core.records import Record
from croupier.master.core.registry import Registry
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.eventlog import files
from croupier.model.errors import CroupierError
from croupier.model.ids import Role, TaskId
from croupier.model.roles import RoleSettings
from croupier.model.task import Command, Source, TaskInfo, TaskState, TaskStatus
from croupier.sim.framework import Habits
from croupier.sim.replay.change import Change
from croupier.sim.replay.reader import BadLog, Reader
from croupier.sim.replay.result import Diverged
from tests.harness.reasons import reasons_of
from tests.harness.recorded import RecordedWorld, make_head, sealed, simulation_recorded
from tests.harness.replayed import PATIENT, Endless, look, nodes, printed, record
from tests.harness.role_statuses import role_statuses
from tests.harness.sim_faults import crash
from tests.harness.world import make_task

Spy = Callable[[State, float], None]

# The length of a run with churn.
SECONDS = 10


def test_the_same_log_gives_the_same_bytes(log: Path) -> None:
    change = Change.parse(["ads=3"], [], None)
    found = look(log, change)
    once, twice = printed(found), printed(look(log, change))
    assert once == twice
    assert "the same, byte for byte" in once[0]
    assert json.loads(once[1])["digest"] == found.digest


def test_recorded_figures_are_printed(log: Path) -> None:
    recorded = look(log).recorded
    assert recorded is not None
    for role in ("ads", "web"):
        assert 0.45 < recorded.shares["role", role] < 0.51
    assert recorded.waits["role", "jobs"].tasks == 8
    assert recorded.waits["role", "jobs"].mean is not None
    assert 0 < recorded.waits["role", "jobs"].mean < 3
    assert recorded.waits["role", "ads"].tasks > 150
    assert recorded.shares["use", "cpus"] > 0.95
    assert sum(recorded.over_time["role", "jobs"][:6]) == 0
    assert sum(recorded.over_time["role", "jobs"][6:8]) > 0


def test_the_same_run_gives_the_same_log(tmp_path: Path, log: Path) -> None:
    record(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == log.read_bytes()


def querying(rng: Random) -> Spy:
    """Return a spy that runs every query at random times."""

    def ask(state: State, now: float) -> None:
        if rng.random() < 0.7:
            return
        role_statuses(state)
        list(state.allocator.queries.what_if({Role("r1"): RoleSettings(7000)}).moved())
        assert state.allocator.dirty_agents >= 0
        for framework_id in state.frameworks:
            state.allocator.queries.entitlement(framework_id)
            reasons_of(state.allocator.queries, framework_id, None, now)
            for agent_id, agent in state.agents.items():
                if agent.in_pool:
                    reasons_of(state.allocator.queries, framework_id, agent_id, now)

    return ask


def churn(path: Path, policy: str, order: str, preemption: bool) -> None:
    """Record frameworks that decline and delay, machines that crash, and operators' queries."""
    rules = PreemptionRules(is_on=preemption, fair_timeout_s=3, guarantee_timeout_s=2, grace_s=1)
    head = make_head(replace(PATIENT, preemption=rules), policy, Rules(order=order))
    rng = Random(order)
    with simulation_recorded(path, head, 100_000, querying(Random(policy))):
        allocator = Allocator(policies.make(policy), head.rules, head.roles)
        cluster = SimulatedCluster(nodes(4), allocator, 7, head.settings)
        for number in range(6):
            think_s, declines = rng.choice([0.0, 0.3]), rng.choice([0.0, 0.5])
            habits = Habits(declares=number % 3 > 0, refuse_s=rng.choice([None, 0.0, 1.0]))
            role = f"r{number % 2}/x{number % 3}"
            Endless(cluster, f"f{number}", role, 1.0, habits, think_s=think_s, declines=declines)
        for at in range(3, SECONDS, 4):
            agent = rng.choice(cluster.agents)
            cluster.kernel.at(at, partial(crash, agent, 1.5))
            amounts = {"cpus": 1000 * rng.randint(1, 4)}
            settings = RoleSettings(1000 * rng.randint(1, 4), guarantee=amounts)
            event = UpdateRoles(1, (RoleChange(Role("r1"), settings),), force=True)
            cluster.kernel.at(at + 0.5, partial(cluster.kernel.step, event))
        cluster.run(SECONDS)


@pytest.mark.parametrize(
    ("policy", "order", "preemption"),
    [
        # Each policy once, each order at least once.
        *((policy, ORDERS[at % len(ORDERS)], True) for at, policy in enumerate(policies.NAMES)),
        ("drf", "random", False),
    ],
)
def test_queries_change_no_decision(
    tmp_path: Path, policy: str, order: str, preemption: bool
) -> None:
    path = tmp_path / "log"
    churn(path, policy, order, preemption)
    found = look(path)
    assert found.digest is not None
    assert found.history.events > 500
    assert len(found.reader.paths) > 1


def test_a_diverging_decision_is_named(tmp_path: Path, log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if n > 50 and b'["offer"' in line)
    entry = json.loads(lines[at])
    entry["decided"] = "0" * 16
    copy = tmp_path / "log"
    copy.write_bytes(b"".join([*lines[:at], sealed(json.dumps(entry).encode()), *lines[at + 1 :]]))
    with pytest.raises(Diverged, match=f"line {at + 1}: event {at}, AllocationDue, was decided"):
        look(copy)
    # A missing event changes the next decisions.
    copy.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
    with pytest.raises(CroupierError, match="log, line"):
        look(copy, verify=True)


def registry_of(before: RecordedWorld) -> Registry:
    """Return what the next master would find in the store."""
    registry = Registry()
    for saved in before.saved:
        assert isinstance(saved, Record)
        registry.apply(saved)
    return registry


def test_a_recovered_master_is_replayed_from_its_registry(tmp_path: Path) -> None:
    before = RecordedWorld(tmp_path / "before")
    agent = before.agent("cpus:4;mem:4GB")
    framework = before.framework(role="ads", demand="cpus:1;mem:1GB")
    before.accept(framework, make_task("t"))
    before.do(UpdateRoles(1, (RoleChange(Role("ads"), RoleSettings(5000)),)))
    before.close()
    registry = registry_of(before)
    agent_id, framework_id = before.agent_id(agent), before.framework_id(framework)

    path = tmp_path / "after"
    head = replace(make_head(registry=registry), master_id="m2")
    world = RecordedWorld(path, head)
    status = TaskStatus(
        framework_id, TaskId("t"), agent_id, TaskState.RUNNING, Source.EXECUTOR, sequence=1
    )
    report = AgentTask(framework_id, make_task("t"), status, (status,), Role("ads"))
    world.now = 3.0
    world.agent("cpus:4;mem:4GB", agent_id=agent_id, tasks=(report,))
    world.framework(role="ads", demand="cpus:1;mem:1GB", framework_id=framework_id)
    world.pass_time(9.0)
    world.do(TimePassed())
    world.close()
    found = look(path)
    assert found.digest is not None
    assert found.history.roles == {Role("ads"): RoleSettings(5000)}
    (run,) = found.history.tasks
    assert (run.role, run.launched_at, run.ended_at) == ("ads", 3.0, None)
    assert found.recorded is not None
    assert found.recorded.shares["role", "ads"] == pytest.approx(0.25 * 9 / 12)


@pytest.mark.parametrize("length", [1_000, 2_000, 200_000])
@pytest.mark.parametrize("end", ["gone", "acknowledged"])
def test_records_of_ended_tasks_are_slimmed_as_recorded(
    tmp_path: Path, length: int, end: str
) -> None:
    path = tmp_path / "log"
    world = RecordedWorld(path)
    agent, framework = world.agent("cpus:4;mem:4GB"), world.framework()
    world.accept(framework, make_sized("t", length))
    if end == "gone":
        world.do(OperateAgent(1, world.agent_id(agent), MarkGone(), "operator"))
    else:
        world.finish(agent, world.framework_id(framework), "t")
        world.call(framework, calls.Acknowledge(((world.agent_id(agent), TaskId("t"), 2),)))
    world.close()
    assert look(path, verify=True).digest is not None


def test_a_full_budget_for_descriptions_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    settings = Settings(description_bytes=1_500)
    world = RecordedWorld(path, make_head(settings))
    world.agent("cpus:4;mem:4GB")
    framework = world.framework()
    verdict = world.accept(framework, make_sized("t", 2_000), make_task("u"))
    assert [task.error is None for task in verdict.tasks] == [True, False]
    world.close()
    assert look(path, verify=True).digest is not None


def test_a_registry_in_a_log_keeps_the_sizes_of_commands(tmp_path: Path) -> None:
    before = RecordedWorld(tmp_path / "before")
    agent, framework = before.agent("cpus:4;mem:4GB"), before.framework()
    before.accept(framework, make_sized("t", 2_000))
    before.close()
    registry = registry_of(before)
    path = tmp_path / "after"
    after = RecordedWorld(path, replace(make_head(registry=registry), master_id="m2"))
    after.do(OperateAgent(1, before.agent_id(agent), MarkGone(), "operator"))
    after.close()
    assert look(path, verify=True).digest is not None


def make_sized(task_id: str, length: int) -> TaskInfo:
    """Return a task with `length` characters of shell line and environment, and a label."""
    command = Command(shell="x" * (length // 2), environment={"A": "y" * (length // 2 - 1)})
    return replace(make_task(task_id), command=command, labels=(("a", "b"),))


# Logs without a beginning.


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parts") / "log"
    record(path, size=30_000)
    return path


@pytest.fixture
def beheaded(tmp_path: Path, parts: Path) -> Path:
    path = tmp_path / "log"
    shutil.copytree(parts.parent, tmp_path, dirs_exist_ok=True)
    for each in files.older(path)[:2]:
        each.unlink()
    assert len(files.all_of(path)) > 3
    return path


def test_a_log_without_beginning_gives_figures(beheaded: Path, log: Path) -> None:
    found = look(beheaded, Change.parse(["ads=3"], [], None))
    assert found.digest is None
    assert found.recorded is not None
    assert found.before is not None
    assert found.after is not None
    for role in ("ads", "web"):
        assert 0.45 < found.recorded.shares["role", role] < 0.51
        assert abs(found.before.shares["role", role] - found.recorded.shares["role", role]) < 0.02
    assert found.after.shares["role", "ads"] > 0.7
    out = io.StringIO()
    print_found(found, out)
    assert "not verified: the log has no beginning" in out.getvalue()
    with pytest.raises(BadLog, match="the beginning of the log is gone"):
        look(beheaded, verify=True)


def test_a_missing_part_is_an_error(beheaded: Path) -> None:
    files.older(beheaded)[1].unlink()
    with pytest.raises(BadLog, match="part 4 of the log of sim is missing"):
        look(beheaded)


def test_any_file_of_a_run_names_it(beheaded: Path) -> None:
    oldest = files.older(beheaded)[0]
    assert Reader(oldest).paths == Reader(beheaded).paths == files.all_of(beheaded)


def test_runs_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for master_id in ("m", "n"):
        world = RecordedWorld(path, replace(make_head(), master_id=master_id))
        world.agent("cpus:4")
        world.framework(name=master_id)
        world.close()
    newest, older = look(path), look(files.older(path)[0])
    assert (newest.history.head.master_id, older.history.head.master_id) == ("n", "m")
    assert newest.reader.other_runs == older.reader.other_runs == 1
    assert newest.digest != older.digest
