"""The judges of chaos runs against real processes find what they are for."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.model.resources import NOTHING, Resources
from tests.bench.soak import ENDED_TASKS, MASTER_RSS, MB, RSS, Noise, Point, Series, Verdict
from tests.chaos.real.certificates import ClusterCertificates
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.daemon import Daemon
from tests.chaos.real.faults import AuthorityStep, Fault, Kill, Renewal
from tests.chaos.real.journal import Answered, Asked, Begun, Entry, Journal, read_entries
from tests.chaos.real.judge import lost_streams
from tests.chaos.real.ledger import parse_ledger
from tests.chaos.real.leftovers import check_agent
from tests.chaos.real.master_accounts import (
    Holder,
    HoldLine,
    MasterAccounts,
    TaskLine,
    check_accounts,
    check_idle,
)
from tests.chaos.real.work import work_named, work_of

ALL = Resources.parse("cpus:4;mem:1GB")
UNIT = Resources.parse("cpus:1;mem:64MB")
BUSY = MasterAccounts(
    Holder("cluster", UNIT, UNIT, 1, ALL),
    (Holder("a1", UNIT, UNIT, 1, ALL),),
    (Holder("f1", UNIT, UNIT, 1, share_ppm=500_000),),
    (Holder("ads", UNIT, UNIT, 1, share_ppm=500_000),),
    (TaskLine("t1", "a1", "f1", "ads/prod", UNIT),),
)
IDLE = MasterAccounts(
    Holder("cluster", NOTHING, NOTHING, 0, ALL),
    (Holder("a1", NOTHING, NOTHING, 0, ALL),),
    (Holder("f1", NOTHING, NOTHING, 0),),
    (Holder("ads", NOTHING, NOTHING, 0),),
    (),
)


def kinds(accounts: MasterAccounts) -> set[str]:
    return {violation.kind for violation in check_accounts(accounts)}


def test_consistent_accounts_are_clean() -> None:
    assert kinds(BUSY) == set()
    assert check_idle(IDLE, ALL) == []


def test_resources_used_twice_or_not_at_all_are_found() -> None:
    (agent,) = BUSY.agents
    twice = replace(BUSY, agents=(replace(agent, used=UNIT + UNIT),))
    assert kinds(twice) == {"counted_twice"}
    assert kinds(replace(BUSY, agents=(replace(agent, used=NOTHING),))) == {"not_counted"}
    assert kinds(replace(BUSY, agents=(replace(agent, tasks=2),))) == {"miscounted"}


def test_resources_offered_twice_are_found() -> None:
    (agent,) = BUSY.agents
    more = replace(agent, offered=ALL)
    assert "counted_twice" in kinds(replace(BUSY, agents=(more,)))
    (framework,) = BUSY.frameworks
    assert "counted_twice" in kinds(replace(BUSY, frameworks=(replace(framework, offered=ALL),)))


def test_what_is_held_counts_once() -> None:
    (agent,), (framework,), (role,) = BUSY.agents, BUSY.frameworks, BUSY.roles
    held = replace(
        BUSY,
        cluster=replace(BUSY.cluster, held=UNIT),
        agents=(replace(agent, held=UNIT),),
        frameworks=(replace(framework, share_ppm=750_000),),
        roles=(replace(role, used=UNIT + UNIT, share_ppm=750_000),),
        holds=(HoldLine("h1", "a1", "f1", "ads/prod", UNIT),),
    )
    assert kinds(held) == set()
    assert kinds(replace(held, cluster=BUSY.cluster)) == {"miscounted"}
    assert kinds(replace(held, frameworks=BUSY.frameworks)) == {"share"}
    assert "miscounted" in kinds(replace(held, agents=BUSY.agents))
    over = replace(agent, held=ALL)
    assert "counted_twice" in kinds(replace(held, agents=(over,)))
    left = replace(IDLE, holds=held.holds)
    assert "leak" in {violation.kind for violation in check_idle(left, ALL)}


def test_a_wrong_share_is_found() -> None:
    (framework,) = BUSY.frameworks
    assert kinds(replace(BUSY, frameworks=(replace(framework, share_ppm=250_000),))) == {"share"}
    (role,) = BUSY.roles
    assert kinds(replace(BUSY, roles=(replace(role, share_ppm=1_000_000),))) == {"share"}


def test_leftovers_of_an_idle_cluster_are_found() -> None:
    assert {violation.kind for violation in check_idle(BUSY, ALL)} == {"leak"}
    assert [violation.about for violation in check_idle(IDLE, ALL + ALL)] == ["cluster"]


# Journals and ledgers are readable after a crash.


def test_entries_are_read_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    written: list[Entry] = [Begun(7), Asked(("w-1", "w-2")), Answered("w-1", "", 1.5)]
    for entry in written:
        journal.write(entry)
    journal.close()
    assert read_entries(path) == written


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"kind": "Begun", "pid": 1}\n{"kind": "ask')
    journal = Journal(path)
    journal.write(Begun(2))
    journal.close()
    assert read_entries(path) == [Begun(1), Begun(2)]


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert read_entries(tmp_path / "none") == []


def test_the_ledger_lists_running_tasks() -> None:
    ran = parse_ledger("start w-1 11\nstart w-2 12\nend w-1\n")
    assert ran.running() == {"w-2": 12}
    with pytest.raises(ValueError, match="no line"):
        parse_ledger("start w-1\n")


def test_work_follows_from_the_seed_and_the_id() -> None:
    assert work_named(3, "w-x-12") == work_of(3, "w-x", 12)
    assert work_of(3, "w", 1) == work_of(3, "w", 1)
    assert {work_of(3, "w", n).code for n in range(50)} != {0}
    call = work_named(3, "w-call7-9")
    assert (call.executor, call.is_executor) == ("w-executor-7", False)
    assert work_named(3, call.executor).is_executor


# Leftovers of ended tasks on agents are found.


CLEAN = """# HELP croupier_agent_tasks Tasks that are not settled, by state.
croupier_agent_tasks{state="RUNNING"} 0.0
croupier_agent_unacknowledged_updates 0.0
croupier_agent_sandboxes_kept 17.0
"""


def test_an_agent_without_leftovers_is_clean(tmp_path: Path) -> None:
    assert check_agent("a1", tmp_path, CLEAN) == []
    (tmp_path / "runs").mkdir()
    assert check_agent("a1", tmp_path, CLEAN) == []


def test_tasks_updates_and_run_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/1").touch()
    dirty = CLEAN.replace(" 0.0", " 2.0")
    found = check_agent("a1", tmp_path, dirty)
    assert [violation.kind for violation in found] == ["kept"] * 3


def test_a_volume_that_was_released_is_found(tmp_path: Path) -> None:
    (tmp_path / "volumes" / "f1" / "w1-volume-2" / "name").mkdir(parents=True)
    [found] = check_agent("a1", tmp_path, CLEAN)
    assert (found.kind, found.detail) == ("kept", "volumes/f1/w1-volume-2/name")


def test_an_agent_without_metrics_is_found(tmp_path: Path) -> None:
    assert [violation.kind for violation in check_agent("a1", tmp_path, "")] == ["kept"] * 2


# Streams that end while only certificates are renewed are violations.


def cluster_of(folder: Path) -> Cluster:
    cluster = Cluster(folder, Layout(is_secured=True), seed=1)
    cluster.certificates = ClusterCertificates(folder / "tls")
    cluster.certificates.add("a1", "agent/a1")
    cluster.agents["a1"] = Daemon("a1", ["true"], folder / "a1.log", {})
    return cluster


def renewal(cluster: Cluster, kind: type[Renewal] = Renewal, meanwhile: str = "") -> Renewal:
    log = cluster.agents["a1"].log
    log.write_text('{"event": "master_lost"}\n')
    fault = kind(cluster, random.Random(1), ["certificates"])
    fault.begin()
    log.write_text(log.read_text() + meanwhile)
    fault.end()
    return fault


def test_only_streams_that_end_meanwhile_count(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    assert lost_streams([renewal(cluster)]) == []
    lost = renewal(cluster, meanwhile='{"event": "master_lost"}\n')
    assert [(found.kind, found.about) for found in lost_streams([lost])] == [("stream", "a1")]
    other: list[Fault] = [lost, Kill(cluster, random.Random(1), ["a1"])]
    assert lost_streams(other) == []


def test_an_authority_is_replaced_in_three_steps(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    assert cluster.certificates is not None
    files = cluster.certificates.files("a1")
    trusted, certificates = [], [files.cert.read_bytes()]
    for _ in range(3):
        renewal(cluster, AuthorityStep)
        trusted.append(files.ca.read_bytes().count(b"BEGIN CERTIFICATE"))
        certificates.append(files.cert.read_bytes())
    assert trusted == [2, 2, 1]
    assert len(set(certificates)) == 4


# The soak distinguishes memory that fills a history from memory that leaks.


A_SECOND = 60


def series(noise: Noise, bytes_a_task: float, minutes: float, ended: int = 0) -> Series:
    """Return samples of 80 MB of memory that grows with each task, one a second."""
    return Series(
        noise,
        [
            Point(at, 80 * MB + bytes_a_task * A_SECOND * at, ended + A_SECOND * at)
            for at in range(int(60 * minutes))
        ],
    )


@pytest.mark.parametrize(
    ("bytes_a_task", "minutes", "ended", "verdict"),
    [
        (0, 3, 0, Verdict.BOUNDED),
        (2_000, 3, 0, Verdict.FILLS),
        (8_000, 3, 0, Verdict.GROWS),
        (2_000, 10, ENDED_TASKS.most, Verdict.GROWS),
        (300, 30, ENDED_TASKS.most, Verdict.FILLS),
    ],
)
def test_memory_of_histories_is_not_a_leak(
    bytes_a_task: float, minutes: float, ended: int, verdict: Verdict
) -> None:
    assert series(MASTER_RSS, bytes_a_task, minutes, ended).verdict() is verdict


def test_memory_without_history_may_not_grow() -> None:
    assert series(RSS, 2_000, 3).verdict() is Verdict.GROWS
