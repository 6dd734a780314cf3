"""Tasks, their placement, and calls that are refused before they are sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from croupier.model.durations import to_milliseconds
from croupier.model.output_bound import OutputBound
from croupier.model.resources import Resources
from croupier.model.verdict import Verdict
from croupier.sdk import (
    Framework,
    InvalidRequest,
    Isolation,
    Limits,
    Task,
    TaskVerdict,
    equals,
    fit,
)
from croupier.sdk.wire import decline_calls, submit_calls
from croupier.wire.task import task_from_wire, task_to_wire
from tests.unit.sdk.test_offer_book import offer

UNIT = Resources.parse("cpus:0.5;mem:32MB")


class TestTask:
    def test_a_task_gets_a_unique_id_at_construction(self) -> None:
        tasks = [Task(["true"], resources=UNIT) for _ in range(10)]
        assert len({task.task_id for task in tasks}) == 10

    def test_a_task_keeps_its_arguments(self) -> None:
        arguments: dict[str, Any] = {
            "shell": "echo $A",
            "resources": UNIT,
            "task_id": "t1",
            "name": "n",
            "env": {"A": "b"},
            "user": "nobody",
            "grace_s": 0.5,
            "labels": {"k": "v"},
        }
        task = Task(**arguments)
        assert (task.task_id, task.name, task.resources) == ("t1", "n", UNIT)
        assert (task.command.shell, task.command.user) == ("echo $A", "nobody")
        assert dict(task.command.environment) == {"A": "b"}
        assert task.info.grace_ms == 500
        assert task.labels == {"k": "v"}
        assert task == Task(**arguments)
        assert "t1" in repr(task)

    def test_a_task_asks_for_limits_and_isolation(self) -> None:
        amounts: dict[str, str | float] = {"mem": "1GB", "pids": 100, "cpus": 1.5}
        task = Task(
            ["x"],
            resources=UNIT,
            limits=amounts,
            image="docker://debian:12",
            namespaces=True,
            network=False,
            max_completion_s=1.5,
            min_run_s=0.5,
            output_size="1MB",
            output_files=3,
        )
        assert task.limits == Limits(cpus=1500, mem=1_024_000, pids=100)
        assert task.isolation == Isolation(True, True, "docker://debian:12")
        assert task.info.max_completion_ms == 1500
        assert task.info.preemption.min_run_ms == 500
        assert task.info.output == OutputBound(1024**2, 3)
        assert task_from_wire(task_to_wire(task.info)) == task.info
        assert task.needs == {
            "memory", "pids", "cpu-quota", "namespaces", "no-network", "images"
        }  # fmt: skip
        text = "mem:1GB;pids:100;cpus:1.5"
        assert Task(["x"], resources=UNIT, limits=text).limits == task.limits
        assert not Task(["x"], resources=UNIT).needs

    @pytest.mark.parametrize(
        ("asked", "why"),
        [
            ({"limits": "mem:1MB"}, "below the task's mem"),
            ({"limits": {"gpus": 1}}, "no limit of gpus"),
            ({"output_size": 1}, "at least 64KB"),
            ({"output_files": 1}, "between 2"),
            ({"limits": {"pids": "many"}}, "not an amount"),
            ({"image": "debian"}, "give docker://NAME"),
            ({"max_completion_s": 0}, "more than 0"),
            ({"max_completion_s": -1}, "between 0"),
            ({"min_run_s": 86_401}, "between 0 and 24 hours"),
        ],
    )
    def test_isolation_that_cannot_be_is_refused(self, asked: dict[str, Any], why: str) -> None:
        with pytest.raises(InvalidRequest, match=why):
            Task(["x"], resources=UNIT, **asked)

    def test_a_task_that_no_agent_can_run_is_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="list of words"):
            Task("echo hello", resources=UNIT)
        with pytest.raises(InvalidRequest, match="either"):
            Task(resources=UNIT)
        with pytest.raises(InvalidRequest, match="no resources"):
            Task(["true"], resources=Resources())
        with pytest.raises(InvalidRequest, match="task id"):
            Task(["true"], resources=UNIT, task_id="a/b")
        with pytest.raises(InvalidRequest, match="empty"):
            Task(["true"], resources=UNIT, task_id="")
        with pytest.raises(InvalidRequest, match="grace"):
            Task(["true"], resources=UNIT, grace_s=-1)


class TestFit:
    def test_tasks_go_to_the_first_offer_with_room(self) -> None:
        offers = [offer("o1"), offer("o2"), offer("o3")]
        unit = Resources.parse("cpus:0.5")
        tasks = [Task(["true"], resources=unit) for _ in range(3)]
        packed = fit(offers, tasks)
        assert [(o.id, len(chosen)) for o, chosen in packed] == [("o1", 2), ("o2", 1), ("o3", 0)]

    def test_a_task_that_fits_nowhere_is_left_out_and_later_ones_are_placed(self) -> None:
        large = Task(["true"], resources=Resources.parse("cpus:2"))
        small = Task(["true"], resources=Resources.parse("cpus:1"))
        assert fit([offer("o1")], [large, small])[0][1] == [small]

    def test_a_task_goes_where_its_needs_can_be_enforced(self) -> None:
        unit = Resources.parse("cpus:0.5")
        task = Task(["x"], resources=unit, limits="pids:10", task_id="t")
        able = replace(offer("o2"), isolation=frozenset({"pids", "memory"}))
        assert fit([offer("o1"), able], [task]) == [(offer("o1"), []), (able, [task])]


class TestFramework:
    def test_a_bad_description_is_refused_at_once(self) -> None:
        with pytest.raises(InvalidRequest, match="role"):
            Framework(role="a//b")
        with pytest.raises(InvalidRequest, match="framework id"):
            Framework(framework_id="a b")
        with pytest.raises(InvalidRequest, match="failover"):
            Framework(failover_timeout_s=-1)
        with pytest.raises(InvalidRequest, match="scalars"):
            Framework(demand=Resources())
        with pytest.raises(InvalidRequest, match="need a demand"):
            Framework(demand_count=3)
        with pytest.raises(InvalidRequest, match="need a demand"):
            Framework(constraints=[equals("rack", "r1")])
        with pytest.raises(InvalidRequest, match="PORT"):
            Framework(master="no such thing")

    def test_the_name_defaults_to_the_class(self) -> None:
        class Hello(Framework):
            pass

        assert Hello().name == "Hello"
        assert Hello(name="x").name == "x"
        assert Hello().framework_id is None
        assert Hello(framework_id="F7").framework_id == "F7"

    def test_the_master_is_taken_from_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CROUPIER_MASTER", "not an address")
        with pytest.raises(InvalidRequest):
            Framework()
        Framework(master="h1:1,h2:2")

    async def test_invalid_calls_are_refused_before_they_are_sent(self) -> None:
        framework = Framework()
        with pytest.raises(InvalidRequest, match="no offer"):
            await framework.decline([])
        with pytest.raises(InvalidRequest, match="refuse"):
            await framework.decline(offer("o1"), refuse_s=float("nan"))
        with pytest.raises(InvalidRequest, match="reason"):
            await framework.decline(offer("o1"), reason="x" * 257)
        with pytest.raises(InvalidRequest, match="count"):
            await framework.demand(UNIT, -1)


def test_durations_are_whole_milliseconds_within_a_year() -> None:
    assert to_milliseconds("x", 0.0015) == 2
    assert to_milliseconds("x", 365 * 86400) == 365 * 86400_000
    for bad in (-0.1, float("inf"), float("nan"), 366 * 86400.0):
        with pytest.raises(InvalidRequest):
            to_milliseconds("x", bad)


def test_a_refused_call_launched_no_task() -> None:
    tasks = (TaskVerdict("t1"), TaskVerdict("t2", InvalidRequest("no")))
    assert Verdict(1, None, tasks).launched == (0,)
    assert Verdict(1, InvalidRequest("no"), tasks).launched == ()
    assert [task.ok for task in tasks] == [True, False]


def test_many_offers_are_declined_by_several_calls() -> None:
    calls = decline_calls([f"o{n}" for n in range(2500)], 1.0, "")
    assert [len(call.decline.offer_ids) for call in calls] == [1000, 1000, 500]


def test_many_tasks_are_submitted_by_calls_that_the_master_takes() -> None:
    small = [Task(["true"], resources=UNIT)] * 2500
    calls = submit_calls(small, "", (), None, 2**20)
    assert [len(call.submit.tasks) for call in calls] == [1000, 1000, 500]
    large = Task(["x"], resources=UNIT, env={"A": "é" * 50_000})
    secret = Task(["x"], resources=UNIT, secrets={"A": "x" * 60_000})
    huge = Task(["x" * 120_000], resources=UNIT)
    for task, most_bytes, parts in ((large, 2**19, 2), (secret, 2**19, 2), (huge, 2**17, 10)):
        calls = submit_calls([task] * 10, "", (), None, most_bytes)
        assert len(calls) == parts
        assert all(call.ByteSize() <= most_bytes for call in calls)
