"""The use of a live task, as its agent answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from croupier.api.objects import as_object
from croupier.master.services.task_use import use_to_wire
from croupier.model.errors import Unavailable
from croupier.model.isolation import Usage


def test_an_agent_tells_what_a_task_has_used_and_may_use() -> None:
    bounds = {"memory_bytes": 2**30, "pids": 20, "cpus": 1.5, "disk_bytes": None}
    usage = asdict(Usage(1500, 2**20, 3, 4, 5, 6))
    use = as_object(use_to_wire({"usage": usage, "limits": {**bounds, "completion_ms": 1000}}))
    assert use == {
        "usage": {
            "cpu_s": 1.5,
            "memory_peak_bytes": 2**20,
            "pids_peak": 3,
            "read_bytes": 4,
            "written_bytes": 5,
            "disk_bytes": 6,
        },
        "limits": {
            "cpus": 1500,
            "mem": 1_024_000,
            "disk": None,
            "pids": 20,
            "files": None,
            "max_completion_s": 1.0,
        },
    }


def test_an_agent_may_measure_nothing() -> None:
    use = as_object(use_to_wire({"usage": None, "limits": {"pids": 7}}))
    assert (use["usage"], use["limits"]["pids"]) == (None, 7)
    assert as_object(use_to_wire({}))["limits"]["pids"] is None


@pytest.mark.parametrize(
    "found",
    [{"usage": {"cpu_ms": -1}}, {"usage": {"cpu_ms": "x"}}, {"usage": 1}, {"limits": [1]},
     {"usage": {"cpu_ms": float("inf")}}, {"usage": {"cpu_ms": 2**64}}, {"usage": [1]},
     {"limits": {"pids": 2**63}}, {"limits": {"completion_ms": "x"}}]
)  # fmt: skip
def test_a_false_agent_is_not_believed(found: Any) -> None:
    with pytest.raises(Unavailable, match="in another form"):
        use_to_wire(found)
