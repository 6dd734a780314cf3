"""What `croupier doctor` says of the running masters."""

from __future__ import annotations

from croupier.api.objects import Json, as_object
from croupier.ctl.commands.doctor import problem_findings, release_findings
from croupier.v1 import operator_pb2 as pb


def running(*versions: str) -> list[Json]:
    return [
        as_object(pb.MasterView(address=f"m{number}:5050", version=version))
        for number, version in enumerate(versions)
    ]


def test_nothing_is_said_of_a_single_master() -> None:
    assert list(release_findings(running("0.1.0"))) == []


def test_masters_of_one_release_are_counted() -> None:
    (found,) = release_findings(running("0.1.0", "0.1.0"))
    assert found.outcome == "ok"
    assert "2 masters are running: 2 of 0.1.0" in found.line


def test_an_unfinished_upgrade_is_a_warning() -> None:
    (found,) = release_findings(running("0.2.0", "0.1.0", "", "0.2.0"))
    assert found.outcome == "warn"
    assert "4 masters are running: 1 of 0.1.0, 2 of 0.2.0, 1 of an unknown release" in found.line
    assert "croupier masters" in found.line


def test_a_problem_of_a_master_is_a_warning() -> None:
    wire = pb.MasterView(address="m1:5050", problem="changed files of --etcd-cert are not in use")
    masters = [*running("0.1.0"), as_object(wire)]
    (found,) = problem_findings(masters)
    assert found.outcome == "warn"
    assert "m1:5050: changed files of --etcd-cert" in found.line
