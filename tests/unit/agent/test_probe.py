from __future__ import annotations

import os
from pathlib import Path

import pytest

from croupier.agent import probe as probing
from croupier.agent.probe import GIB, GivenResources, probe, spared
from croupier.model.errors import InvalidRequest, Unavailable

NONE = GivenResources.parse("")


def test_what_is_not_named_is_what_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    monkeypatch.setattr(probing, "_memory_bytes", lambda: 4 * GIB)
    monkeypatch.setattr(probing, "_disk_bytes", lambda _: 100 * GIB)
    assert str(probe(NONE, tmp_path)) == "cpus:3;mem:3GB;disk:95GB;ports:[31000-32000]"


def test_what_is_named_replaces_what_is_found_even_with_nothing(tmp_path: Path) -> None:
    given = GivenResources.parse("cpus:64;disk:0;ports:[1-2];gpus:0;licences:3")
    found = probe(given, tmp_path)
    assert found["mem"] > 0
    assert (found["cpus"], found["disk"], found["gpus"]) == (64_000, 0, 0)
    assert found.ranges == {"ports": ((1, 2),)}
    assert found["licences"] == 3000


def test_ports_that_are_named_as_a_number_are_not_found_besides(tmp_path: Path) -> None:
    assert probe(GivenResources.parse("ports:5"), tmp_path).ranges == {}


@pytest.mark.parametrize(
    ("total", "left"), [(64 * GIB, 63 * GIB), (2 * GIB, GIB), (GIB, GIB // 2), (0, 0)]
)
def test_a_small_machine_keeps_half_for_itself(total: int, left: int) -> None:
    assert spared(total, GIB) == left


def test_what_is_given_must_be_resources() -> None:
    with pytest.raises(InvalidRequest, match="cpus: 'four' is not an amount"):
        GivenResources.parse("cpus:four")


def test_a_disk_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot read the disk size"):
        probe(NONE, tmp_path / "none")
