"""A log decided again, and what would have been otherwise."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.allocator.what_if import role_entitlements
from croupier.master.core import calls
from croupier.master.core.events import AgentStopped, AgentTask, TimePassed, UpdateRoles
from croupier.master.core.records import Record, Registry
from croupier.master.core.roles import RoleChange
from croupier.master.core.settings import Settings
from croupier.master.core.standing import stand
from croupier.master.core.state import State
from croupier.master.eventlog import files
from croupier.master.eventlog.lines import Head
from croupier.model.demand import Demand
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Source, TaskState, TaskStatus
from croupier.sim.cluster import Cluster, Node
from croupier.sim.framework import Habits, PretendFramework
from croupier.sim.machine import Size
from croupier.sim.replay.change import Change
from croupier.sim.replay.command import find
from croupier.sim.replay.exact import Parted
from croupier.sim.replay.reader import BadLog, Reader
from croupier.sim.replay.report import Found, print_found, print_json
from croupier.sim.work import Shape, Work
from tests.harness.recorded import LARGE, RecordedWorld, make_head, simulation_recorded
from tests.harness.world import make_task

UNIT = Resources.parse("cpus:1;mem:1GB")
SHAPE = Shape(UNIT, Size.of(1, 1))
NODE = Resources.parse("cpus:4;mem:4GB")
PATIENT = Settings(agent_timeout_s=365 * 24 * 3600.0, suspect_beats=1e9)

Spy = Callable[[State, float], None]


def quiet(done: float, text: str = "") -> None:
    """Tell nobody how far it is."""


def look(path: Path, change: Change | None = None, verify: bool = False) -> Found:
    return find(path, change or Change(), quiet, verify=verify)


def nodes(number: int) -> list[Node]:
    return [Node(f"n{i}", Size.of(4, 4), NODE) for i in range(number)]


class Endless:
    """Has always more tasks to do than fit."""

    def __init__(
        self, cluster: Cluster, name: str, role: str, seconds: float, habits: Habits | None = None
    ) -> None:
        self.rng = Random(name)
        self.seconds = seconds
        self.framework: PretendFramework = cluster.framework(
            name, role, habits, self.works(40), lambda _: self.framework.submit(self.works(1))
        )

    def works(self, number: int) -> list[Work]:
        return [Work(SHAPE, self.rng.uniform(0.5, 1.5) * self.seconds) for _ in range(number)]


def record(path: Path, head: Head | None = None, size: int = LARGE, seconds: float = 120) -> None:
    """Two roles of weight 1 that want all they can get, and a job of eight tasks at 60 s."""
    head = head or make_head(PATIENT)
    with simulation_recorded(path, head, size):
        allocator = Allocator(policies.make(head.policy), head.rules, head.roles)
        cluster = Cluster(nodes(5), allocator, settings=head.settings)
        Endless(cluster, "a", "ads", 2.0)
        Endless(cluster, "b", "web", 2.0)
        job = [Work(SHAPE, 5.0) for _ in range(8)]

        def come() -> None:
            cluster.framework("job", "jobs", None, job)

        cluster.kernel.at(60.0, come)
        cluster.run(seconds)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "events.log"
    record(path)
    return path


# Decided again.


def told(path: Path, change: Change | None = None) -> tuple[str, str]:
    found = look(path, change)
    text, document = io.StringIO(), io.StringIO()
    print_found(found, text)
    print_json(found, document)
    return text.getvalue(), document.getvalue()


def test_the_same_log_gives_the_same_bytes(log: Path) -> None:
    change = Change.parse(["ads=3"], [], None)
    once, twice = told(log, change), told(log, change)
    assert once == twice
    assert "the same, byte for byte" in once[0]
    assert json.loads(once[1])["digest"] == look(log, verify=True).verdict.digest


def test_what_was_recorded_is_told(log: Path) -> None:
    recorded = look(log).recorded
    assert recorded is not None
    for role in ("ads", "web"):
        assert 0.45 < recorded.shares["role", role] < 0.51
    assert recorded.waits["role", "jobs"].tasks == 8
    assert recorded.waits["role", "jobs"].mean is not None
    assert 0 < recorded.waits["role", "jobs"].mean < 3
    assert recorded.waits["role", "ads"].tasks > 300
    assert recorded.shares["use", "cpus"] > 0.95
    assert sum(recorded.over_time["role", "jobs"][:6]) == 0
    assert sum(recorded.over_time["role", "jobs"][6:8]) > 0


def test_the_same_run_gives_the_same_log(tmp_path: Path, log: Path) -> None:
    record(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == log.read_bytes()


def nosy(rng: Random) -> Spy:
    """Somebody who asks all that can be asked, at any time."""

    def ask(state: State, now: float) -> None:
        if rng.random() < 0.7:
            return
        stand(state)
        role_entitlements(state.allocator.tree, {Role("r1"): RoleSettings(7000)})
        assert state.allocator.unsettled_agents >= 0
        for framework_id in state.frameworks:
            state.allocator.entitlement(framework_id)
            state.allocator.explain(framework_id, None, now)
            for agent_id, agent in state.agents.items():
                if agent.in_pool:
                    state.allocator.explain(framework_id, agent_id, now)

    return ask


def churn(path: Path, policy: str, order: str, preemption: bool) -> None:
    """Frameworks that decline, think, and leave; machines that crash; operators who ask."""
    rules = PreemptionRules(is_on=preemption, fair_timeout_s=3, guarantee_timeout_s=2, grace_s=1)
    head = make_head(replace(PATIENT, preemption=rules), policy, Rules(order=order))
    rng = Random(order)
    with simulation_recorded(path, head, 200_000, nosy(Random(policy))):
        allocator = Allocator(policies.make(policy), head.rules, head.roles)
        cluster = Cluster(nodes(4), allocator, 7, head.settings)
        for number in range(6):
            habits = Habits(
                declares=number % 3 > 0,
                think_s=rng.choice([0.0, 0.3]),
                declines=rng.choice([0.0, 0.5]),
                refuse_s=rng.choice([None, 0.0, 1.0]),
            )
            Endless(cluster, f"f{number}", f"r{number % 2}/x{number % 3}", 1.0, habits)
        for at in range(3, 30, 4):
            agent = rng.choice(cluster.agents)
            cluster.kernel.at(at, partial(agent.crash, 1.5))
            amounts = {"cpus": 1000 * rng.randint(1, 4)}
            settings = RoleSettings(1000 * rng.randint(1, 4), guarantee=amounts)
            event = UpdateRoles(1, (RoleChange(Role("r1"), settings),), force=True)
            cluster.kernel.at(at + 0.5, partial(cluster.kernel.tell, event))
        cluster.run(30)


@pytest.mark.parametrize(
    ("policy", "order", "preemption"),
    [
        *((policy, "arrival", True) for policy in policies.NAMES),
        ("drf", "random", False),
        ("random", "pack", True),
        ("fifo", "spread", True),
    ],
)
def test_who_asks_changes_no_decision(
    tmp_path: Path, policy: str, order: str, preemption: bool
) -> None:
    path = tmp_path / "log"
    churn(path, policy, order, preemption)
    found = look(path)
    assert found.verdict.digest is not None
    assert found.verdict.events > 500
    assert len(found.reader.paths) > 1


def test_a_decision_that_is_another_is_named(tmp_path: Path, log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if n > 50 and '["offer"' in line)
    entry = json.loads(lines[at])
    entry["decided"] = "0" * 16
    copy = tmp_path / "log"
    copy.write_text("".join([*lines[:at], json.dumps(entry) + "\n", *lines[at + 1 :]]))
    with pytest.raises(Parted, match=f"line {at + 1}: event {at}, AllocationDue, was decided"):
        look(copy)
    # An event that is missing makes the next decisions others.
    copy.write_text("".join([*lines[:at], *lines[at + 1 :]]))
    with pytest.raises(CroupierError, match="log, line"):
        look(copy, verify=True)


def test_a_master_that_recovered_is_replayed_from_what_it_knew(tmp_path: Path) -> None:
    before = RecordedWorld(tmp_path / "before")
    agent = before.agent("cpus:4;mem:4GB")
    framework = before.framework(role="ads", demand="cpus:1;mem:1GB")
    before.accept(framework, make_task("t"))
    before.do(UpdateRoles(1, (RoleChange(Role("ads"), RoleSettings(5000)),)))
    before.close()
    registry = Registry()
    for record in before.saved:
        assert isinstance(record, Record)
        registry.apply(record)
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
    assert found.verdict.digest is not None
    assert found.history.roles == {Role("ads"): RoleSettings(5000)}
    (run,) = found.history.tasks
    assert (run.role, run.launched_at, run.ended_at) == ("ads", 3.0, None)
    assert found.recorded is not None
    assert found.recorded.shares["role", "ads"] == pytest.approx(0.25 * 9 / 12)


# Without its beginning.


@pytest.fixture
def beheaded(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    record(path, size=60_000)
    for each in files.older(path)[:2]:
        each.unlink()
    assert len(files.all_of(path)) > 3
    return path


def test_a_log_without_beginning_is_good_for_figures(beheaded: Path, log: Path) -> None:
    found = look(beheaded, Change.parse(["ads=3"], [], None))
    assert found.verdict.digest is None
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
    assert newest.verdict.digest != older.verdict.digest


# What would have been.


def test_weights_move_shares(log: Path) -> None:
    found = look(log, Change.parse(["ads=3"], [], None))
    assert found.before is not None
    assert found.after is not None
    for role in ("ads", "web"):
        assert 0.45 < found.before.shares["role", role] < 0.51
    assert 0.70 < found.after.shares["role", "ads"] < 0.77
    assert 0.20 < found.after.shares["role", "web"] < 0.27
    assert found.after.waits["role", "jobs"].tasks == 8


def test_quotas_bind(log: Path) -> None:
    change = Change.parse([], ["web=limit:cpus:2", "jobs=guarantee:cpus:8"], None)
    found = look(log, change)
    assert found.before is not None
    assert found.after is not None
    assert found.after.shares["role", "web"] <= 0.1
    assert found.after.shares["role", "ads"] > 0.85
    before, after = found.before.waits["role", "jobs"].mean, found.after.waits["role", "jobs"].mean
    assert before is not None
    assert after is not None
    assert after <= before


def test_another_policy_deals_otherwise(log: Path) -> None:
    found = look(log, Change.parse([], [], "fifo"))
    assert found.after is not None
    assert found.after.shares["role", "ads"] > 0.95
    # The job never has its turn, and is seen to wait.
    assert found.after.waits["role", "jobs"].waiting == 8


def test_agents_and_frameworks_come_and_go_as_they_did(tmp_path: Path) -> None:
    path = tmp_path / "log"
    world = RecordedWorld(path)
    first = world.agent("cpus:4;mem:4GB", "first")
    framework = world.framework(role="ads", demand="cpus:2;mem:1GB", count=4)
    for number in range(2):
        tasks = [make_task(f"t{number}{each}", "cpus:2;mem:1GB") for each in range(2)]
        offers = [offer.offer_id for offer in world.offers(framework)]
        assert world.accept(framework, *tasks, offers=[*offers]).error is None
        world.now += 4.0
        if number == 0:
            for each in range(2):
                world.finish(first, world.framework_id(framework), f"t0{each}")
    # At 8 s the second two are lost with their agent.
    world.do(AgentStopped(first, "bye"))
    world.now = 10.0
    second = world.agent("cpus:2;mem:4GB", "second")
    world.call(framework, calls.UpdateDemand((Demand(Resources.parse("cpus:2;mem:1GB"), 1),)))
    world.accept(framework, make_task("t2", "cpus:2;mem:1GB"))
    world.now = 15.0
    world.finish(second, world.framework_id(framework), "t2")
    world.call(framework, calls.Teardown())
    world.now = 20.0
    world.do(TimePassed())
    world.close()
    found = look(path, Change.parse(["ads=2"], [], None))
    assert [(each.came, each.left) for each in found.history.agents] == [(0, 8), (10, None)]
    runs = [(run.launched_at, run.ended_at, run.was_lost) for run in found.history.tasks]
    assert runs == [(0, 4, False)] * 2 + [(4, 8, True)] * 2 + [(10, 15, False)]
    assert found.history.frameworks[0].left == 15
    assert found.recorded is not None
    assert found.before is not None
    assert found.recorded.shares["role", "ads"] == pytest.approx(13 / 20)
    # Without the two that were lost; the third is wanted when it was declared.
    assert found.before.shares["role", "ads"] == pytest.approx(9 / 20)
    assert found.before == found.after
    assert found.before.waits["role", "ads"].tasks == 3


@pytest.mark.parametrize(
    ("weights", "quotas", "policy", "why"),
    [
        (["ads"], [], None, "not ROLE=WEIGHT"),
        (["ads=0"], [], None, "weight of ads"),
        (["/=1"], [], None, "illegal component"),
        ([], ["ads"], None, "is not ROLE=guarantee"),
        ([], ["ads=cpus:4"], None, "is not ROLE=guarantee"),
        ([], ["ads=limit:cpus:4,limit:cpus:4"], None, "is not ROLE=guarantee"),
        ([], ["ads=limit:cpus:x"], None, "not an amount"),
        ([], ["ads=limit:cpus:1", "ads=limit:cpus:2"], None, "given twice"),
        ([], ["a=limit:cpus:1,guarantee:cpus:2"], None, "role a: "),
        ([], ["a=guarantee:cpus:1", "a/b=guarantee:cpus:2"], None, "guaranteed to roles within a"),
        ([], [], "luck", "not a policy"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    log: Path, weights: list[str], quotas: list[str], policy: str | None, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        look(log, Change.parse(weights, quotas, policy))


def test_a_quota_is_read() -> None:
    change = Change.parse(["a=2", "b=0.5"], ["x=y=guarantee:cpus:4;mem:8GB, limit:none"], None)
    assert change.weights == {"a": 2000, "b": 500}
    quota = change.quotas[Role("x=y")]
    assert quota.guarantee == {"cpus": 4000, "mem": 8_192_000}
    assert quota.limit == {}
    assert str(change) == (
        "a weighs 2, b weighs 0.5, x=y is guaranteed cpus:4;mem:8GB, x=y is limited to nothing"
    )


# Logs that are none.


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path, log: Path) -> None:
    data = log.read_bytes()
    copy = tmp_path / "log"
    copy.write_bytes(data[:-40])
    found = look(copy)
    assert found.verdict.digest is not None
    assert found.reader.notes == [
        f"{copy}, line {data.count(bytes([10]))} is cut off, and was left out"
    ]


def test_a_broken_line_is_named(tmp_path: Path, log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    copy = tmp_path / "log"
    for broken, why in (
        (b"{\n", "not a line of JSON"),
        (b'{"at":0,"event":{"kind":"Nothing"}}\n', "unknown kind 'Nothing'"),
        (lines[0], "a head must be the first line"),
        (lines[5].replace(b'"at":0.0', b'"at":-1.0'), "before the one that precedes it"),
        (b'{"at":0,"event":{"kind":"AgentStopped","session":1}}\n', "'message' is missing"),
    ):
        copy.write_bytes(b"".join([*lines[:30], broken, *lines[31:]]))
        with pytest.raises(CroupierError, match=f"log, line 31.*{why}|{why}"):
            look(copy)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(BadLog, match="No such file"):
        look(path)
    path.write_bytes(b"")
    with pytest.raises(BadLog, match="is empty"):
        look(path)
    path.write_bytes(b'{"head":{"format":99}}\n')
    with pytest.raises(BadLog, match="line 1: a log of format 99; this program reads format 1"):
        look(path)
    path.write_bytes(b'{"at":0,"event":{"kind":"TimePassed"}}\n')
    with pytest.raises(BadLog, match="not the head of an event log"):
        look(path)
    path.write_bytes(b"\x00\xff" * 1000)
    with pytest.raises(BadLog, match="line 1"):
        look(path)
    with pytest.raises(BadLog, match="Is a directory"):
        look(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadLog, match="not a regular file"):
        look(tmp_path / "pipe")


@pytest.mark.parametrize(
    "spoilt",
    [
        {"policy": "luck"},
        {"rules": {"order": "no"}},
        {"settings": {"completed_tasks": -1}},
        {"roles": {"a": {"weight": 0}}},
    ],
)
def test_a_head_that_no_master_begins_with_is_refused(
    tmp_path: Path, log: Path, spoilt: dict[str, object]
) -> None:
    lines = log.read_text().splitlines(keepends=True)
    head = json.loads(lines[0])
    head["head"] |= spoilt
    path = tmp_path / "log"
    path.write_text(json.dumps(head) + "\n" + "".join(lines[1:]))
    with pytest.raises(BadLog, match="no master can begin"):
        look(path)


def test_a_log_with_no_events_is_told_as_such(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    text, _ = told(path, Change.parse(["ads=2"], [], None))
    assert "0 events in 0.0 s" in text


def test_what_a_terminal_would_obey_is_spelled_out(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "log"
    path.write_text(log.read_text().replace('"version":"test"', '"version":"\\u001b[31m"'))
    text, _ = told(path)
    assert "\x1b" not in text
    assert "version \\x1b[31m" in text
