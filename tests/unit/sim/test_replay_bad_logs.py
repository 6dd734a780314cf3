"""Logs that are damaged, malicious, or no logs at all."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from croupier.master.core import calls
from croupier.master.core.events import AgentStopped, TimePassed
from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.sim.replay.change import Change
from croupier.sim.replay.demand_history import DemandHistory
from croupier.sim.replay.reader import BadLog
from tests.harness.recorded import RecordedWorld, sealed
from tests.harness.replayed import look, printed
from tests.harness.world import make_task


def test_an_incomplete_last_line_is_ignored(tmp_path: Path, log: Path) -> None:
    data = log.read_bytes()
    copy = tmp_path / "log"
    copy.write_bytes(data[:-40])
    found = look(copy)
    assert found.digest is not None
    assert found.reader.notes == [
        f"{copy}, line {data.count(bytes([10]))} is cut off, and was left out"
    ]


def test_a_broken_line_is_named(tmp_path: Path, log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    copy = tmp_path / "log"
    for broken, why in (
        (b"{\n", "not a line of JSON"),
        (sealed(b'{"at":0,"event":{"kind":"Nothing"}}'), "unknown kind 'Nothing'"),
        (lines[0], "a head must be the first line"),
        (sealed(lines[5].replace(b'"at":0.0', b'"at":-1.0')), "before the one that precedes it"),
        (sealed(b'{"at":0,"event":{"kind":"AgentStopped","session":1}}'), "'message' is missing"),
        (re.sub(rb',"crc":"[0-9a-f]{8}"', b"", lines[5]), "its checksum is missing"),
    ):
        copy.write_bytes(b"".join([*lines[:30], broken, *lines[31:]]))
        with pytest.raises(CroupierError, match=f"log, line 31.*{why}|{why}"):
            look(copy)


def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(BadLog, match="No such file"):
        look(path)
    path.write_bytes(b"")
    with pytest.raises(BadLog, match="is empty"):
        look(path)
    path.write_bytes(b'{"head":{"format":99}}\n')
    with pytest.raises(
        BadLog, match="line 1: a log of format 99; this program reads formats up to"
    ):
        look(path)
    path.write_bytes(sealed(b'{"at":0,"event":{"kind":"TimePassed"}}'))
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
def test_a_head_with_unusable_settings_is_refused(
    tmp_path: Path, log: Path, spoilt: dict[str, object]
) -> None:
    lines = log.read_text().splitlines(keepends=True)
    head = json.loads(lines[0])
    head["head"] |= spoilt
    path = tmp_path / "log"
    first = sealed(json.dumps(head, separators=(",", ":")).encode())
    path.write_bytes(first + "".join(lines[1:]).encode())
    with pytest.raises(BadLog, match="no master can begin"):
        look(path)


def test_a_log_without_events_is_replayed(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    text, _ = printed(look(path, Change.parse(["ads=2"], [], None)))
    assert "0 events in 0.0 s" in text


def test_control_characters_are_escaped(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "log"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    changed = sealed(first.replace(b'"version":"test"', b'"version":"\\u001b[31m"'))
    path.write_bytes(b"".join([changed, *rest]))
    text, _ = printed(look(path))
    assert "\x1b" not in text
    assert "version \\x1b[31m" in text


# Replaying a log with other settings.


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


def test_another_policy_allocates_differently(log: Path) -> None:
    found = look(log, Change.parse([], [], "fifo"))
    assert found.after is not None
    assert found.after.shares["role", "ads"] > 0.95
    # The job never gets resources, and its tasks wait.
    assert found.after.waits["role", "jobs"].waiting == 8


def test_agents_and_frameworks_come_and_go_as_recorded(tmp_path: Path) -> None:
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
    # At 8 s the other two are lost with their agent.
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
    # The two lost tasks do not count; the third waits since it was demanded.
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
def test_a_contradictory_change_is_refused(
    tmp_path: Path, weights: list[str], quotas: list[str], policy: str | None, why: str
) -> None:
    path = tmp_path / "log"
    world = RecordedWorld(path)
    world.agent("cpus:4")
    world.close()
    with pytest.raises(InvalidRequest, match=why):
        look(path, Change.parse(weights, quotas, policy))


def test_a_quota_is_read() -> None:
    change = Change.parse(["a=2", "b=0.5"], ["x=y=guarantee:cpus:4;mem:8GB, limit:none"], None)
    assert change.weights == {"a": 2000, "b": 500}
    quota = change.quotas[Role("x=y")]
    assert quota["guarantee"] == {"cpus": 4000, "mem": 8_192_000}
    assert quota["limit"] == {}
    assert str(change) == (
        "a weighs 2, b weighs 0.5, x=y is guaranteed cpus:4;mem:8GB, x=y is limited to nothing"
    )


# Demand history for demands that differ in constraints alone.


ADS = Role("ads")
UNIT = Resources.parse("cpus:1")


def in_zone(zone: str, count: int | None) -> Demand:
    return Demand(UNIT, count, (equals("zone", zone),))


def test_a_task_counts_for_the_demand_whose_constraints_its_agent_passes() -> None:
    history = DemandHistory(0.0)
    history.declare([in_zone("a", 2)], ADS, 1.0)
    both = [in_zone("a", 2), in_zone("b", 1)]
    history.declare(both, ADS, 2.0)
    assert history.launch(ADS, UNIT, {"zone": "b"}) == (2.0, both[1])
    assert history.launch(ADS, UNIT, {"zone": "b"}) == (1.0, both[0])
    assert [tracked.units for tracked in history] == [1, 0]


def test_tasks_beyond_the_demand_have_no_time_of_demand() -> None:
    history = DemandHistory(0.0)
    wanted = in_zone("a", 1)
    history.declare([wanted], ADS, 1.0)
    assert history.launch(ADS, UNIT, {}) == (1.0, wanted)
    assert history.launch(ADS, UNIT, {}) == (None, wanted)
    assert history.launch(Role("web"), UNIT, {}) == (None, None)


def test_endless_demand_is_endless_in_its_own_zone_only() -> None:
    history = DemandHistory(0.0)
    finite, endless = in_zone("a", 1), in_zone("b", None)
    history.declare([finite, endless], ADS, 1.0)
    assert history.launch(ADS, UNIT, {"zone": "a"}) == (1.0, finite)
    assert history.launch(ADS, UNIT, {"zone": "b"}) == (None, endless)
