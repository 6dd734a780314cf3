from __future__ import annotations

import os
from pathlib import Path

import pytest

from croupier.agent import probe as probing
from croupier.agent.probe import GIB, GivenResources, probe, spared
from croupier.model.errors import InvalidRequest, Unavailable

NONE = GivenResources.parse("")


def test_resources_that_are_not_named_are_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    monkeypatch.setattr(probing, "_memory_bytes", lambda: 4 * GIB)
    monkeypatch.setattr(probing, "_disk_bytes", lambda _: 100 * GIB)
    assert str(probe(NONE, tmp_path)) == "cpus:3;mem:3GB;disk:95GB;ports:[31000-32000]"


def test_named_resources_replace_probed_ones_even_by_0(tmp_path: Path) -> None:
    given = GivenResources.parse("cpus:64;disk:0;ports:[1-2];gpus:0;licences:3")
    found = probe(given, tmp_path)
    assert found["mem"] > 0
    assert (found["cpus"], found["disk"], found["gpus"]) == (64_000, 0, 0)
    assert found.ranges == {"ports": ((1, 2),)}
    assert found["licences"] == 3000


def test_ports_named_as_a_number_are_not_probed_too(tmp_path: Path) -> None:
    assert probe(GivenResources.parse("ports:5"), tmp_path).ranges == {}


@pytest.mark.parametrize(
    ("total", "left"), [(64 * GIB, 63 * GIB), (2 * GIB, GIB), (GIB, GIB // 2), (0, 0)]
)
def test_a_small_machine_leaves_half_to_the_system(total: int, left: int) -> None:
    assert spared(total, GIB) == left


def test_text_that_is_not_an_amount_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="cpus: 'four' is not an amount"):
        GivenResources.parse("cpus:four")


def test_a_missing_disk_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot read the disk size"):
        probe(NONE, tmp_path / "none")
