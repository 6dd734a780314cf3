"""Batch jobs: what a file may say, and the graph of its tasks."""

from __future__ import annotations

import time

import pytest

from croupier.apps.batch.job import BatchJob, batch_of
from croupier.apps.batch.machine import BatchTasks, NodeState, Row
from croupier.apps.batch.plan import JobPlan
from croupier.apps.controller.outcomes import Outcome
from croupier.apps.job_file.section import section_of_text
from croupier.model.errors import InvalidRequest
from croupier.model.gang import GangPlacement


def job(text: str) -> BatchJob:
    return batch_of(section_of_text(text, "f.toml"), "f")


def plan(text: str) -> JobPlan:
    return JobPlan(job(text))


def test_a_job_has_tasks_and_arrays() -> None:
    found = job("""
        name = "nightly"
        role = "ads/batch"
        max_active = 5
        [defaults]
        env = {A = "1"}
        [tasks.fetch]
        command = ["fetch", "{i}"]
        [tasks.work]
        array = ["a", 2]
        command = ["work", "{i}", "{j}"]
        env = {I = "<{i}>"}
        name = "work on {i}"
        after = "fetch"
    """)
    assert (found.name, found.role, found.most_active, found.count) == (
        "nightly",
        "ads/batch",
        5,
        3,
    )
    fetch, work = found.steps
    assert fetch.task_spec(0).command == ("fetch", "{i}")
    assert [work.task_name(at) for at in (0, 1)] == ["work[a]", "work[2]"]
    assert work.task_spec(1).command == ("work", "2", "{j}")
    assert work.task_spec(1).env == {"A": "1", "I": "<2>"}
    assert work.filled(work.title, 0) == "work on a"


@pytest.mark.parametrize(
    ("array", "values"),
    [
        ("3", ("0", "1", "2")),
        ("'1-3'", ("1", "2", "3")),
        ("'-1-1'", ("-1", "0", "1")),
        ("'0-9:4'", ("0", "4", "8")),
        ("['x', 1, 0.5]", ("x", "1", "0.5")),
    ],
)
def test_arrays(array: str, values: tuple[str, ...]) -> None:
    (step,) = job(f"[tasks.a]\nshell = 'x'\narray = {array}").steps
    assert step.values == values


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ("0", "must be between 1 and 100000, not 0"),
        ("100001", "must be between 1 and 100000"),
        ("'3-1'", "'3-1' holds no number"),
        ("'1-3:0'", "holds no number"),
        ("'0-100000'", "has more than 100000 values"),
        ("'1..3'", "'1..3' is not a number, a range such as '1-100'"),
        ("true", "a number, a range such as"),
        ("[]", "an array has 1 to 100000 values"),
        ("['a', 'a']", "'a' is given twice"),
        ("['1', 1]", "'1' is given twice"),
        ("[[]]", "value 0 is not a text or a number"),
        ("['a]']", "value 0 is not 1 to 100 printable characters without ']'"),
    ],
)
def test_bad_arrays(array: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^f\.toml: tasks\.a\.array: ") as caught:
        job(f"[tasks.a]\nshell = 'x'\narray = {array}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.toml: tasks: is missing"),
        ("[tasks]", "f.toml: tasks: a job has 1 to 100000 tasks, not 0"),
        ("task = {}", "f.toml: task: unknown key; did you mean 'tasks'?"),
        ("[tasks.a]\nshel = 'x'", "f.toml: tasks.a.shel: unknown key; did you mean 'shell'?"),
        (
            "[tasks.a]\nretries = 'x'",
            "f.toml: tasks.a.retries: a whole number is expected, not 'x'",
        ),
        ("[tasks.'a.b']\nshell = 'x'", "f.toml: tasks.'a.b': a task's name has 1 to 64"),
        ("[defaults]\nfoo = 1\n[tasks.a]", "f.toml: defaults.foo: unknown key"),
        ("role = 'a//b'\n[tasks.a]\nshell = 'x'", "f.toml: role: role 'a//b' has an illegal"),
        ("name = ''\n[tasks.a]\nshell = 'x'", "f.toml: name: a name has 1 to 200"),
        ("[tasks.a]\nshell = 'x'\nafter = [1]", "f.toml: tasks.a.after[0]: a text is expected"),
    ],
)
def test_mistakes_have_their_place(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        job(text)
    assert str(caught.value).startswith(message)


def edges(found: JobPlan) -> set[tuple[str, str, bool]]:
    names = [f"({node.name})" if node.is_barrier else node.name for node in found.nodes]
    return {
        (names[node.index], names[target], must)
        for node in found.nodes
        for target, must in node.dependents
    }


def test_dependencies_on_tasks_arrays_and_the_same_value() -> None:
    found = plan("""
        [tasks.a]
        shell = "x"
        [tasks.b]
        shell = "x"
        array = 2
        after = "a"
        [tasks.c]
        shell = "x"
        array = ["0", "1"]
        after = "b[{i}]"
        after_any = "b"
        [tasks.d]
        shell = "x"
        after_any = ["c[1]", "b"]
    """)
    assert edges(found) == {
        ("a", "b[0]", True), ("a", "b[1]", True),
        ("b[0]", "(b)", True), ("b[1]", "(b)", True),
        ("b[0]", "c[0]", True), ("b[1]", "c[1]", True),
        ("(b)", "c[0]", False), ("(b)", "c[1]", False),
        ("c[1]", "d", False), ("(b)", "d", False),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("after = 'bb'", "", "tasks.a.after[0]: there is no task 'bb'"),
        ("after = 'wrok'", "", "tasks.a.after[0]: there is no task 'wrok'; did you mean 'work'?"),
        ("after = 'b'", "after = 'a'", "tasks wait for each other: a before b before a"),
        ("after_any = 'b'", "after = 'a'", "tasks wait for each other: a before b before a"),
        ("after = 'a'", "", "tasks wait for each other: a before a"),
        ("after = 'work[0]'", "", "tasks.a.after[0]: 'work' has no task 'work[0]'"),
        ("after = 'work[1'", "", "tasks.a.after[0]: 'work' has no task 'work[1'"),
        ("after = 'b[1]'", "", "tasks.a.after[0]: 'b' is no array"),
        ("after = 'more'", "", "before more["),
        ("array = 2\nafter = 'more'", "", "before more["),
    ],
)
def test_bad_dependencies(a: str, b: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        plan(f"""
            [tasks.a]
            shell = "x"
            {a}
            [tasks.b]
            shell = "x"
            {b}
            [tasks.work]
            shell = "x"
            array = [1, 2]
            [tasks.more]
            shell = "x"
            array = [1, 2]
            after = "a"
        """)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_array_that_waits_for_itself_is_a_cycle() -> None:
    with pytest.raises(InvalidRequest, match=r"tasks wait for each other: a\[0\] before a\[0\]"):
        plan("[tasks.a]\nshell = 'x'\narray = 3\nafter = 'a[{i}]'")
    with pytest.raises(InvalidRequest, match=r"tasks wait for each other: a\[0\] before a\[0\]"):
        plan("[tasks.a]\nshell = 'x'\narray = 3\nafter = 'a'")


def test_a_long_cycle_is_cut() -> None:
    tasks = "".join(
        f"[tasks.t{n}]\nshell = 'x'\nafter = 't{(n + 1) % 5000}'\n" for n in range(5000)
    )
    with pytest.raises(InvalidRequest) as caught:
        plan(tasks)
    assert str(caught.value).startswith("tasks wait for each other: t0 before t4999 before t4998")
    assert str(caught.value).endswith("before ...")


def test_task_ids_are_found_again() -> None:
    found = plan("[tasks.a]\nshell = 'x'\n[tasks.b-1]\nshell = 'x'\narray = [7, 8]")
    node = found.nodes[2]
    assert (node.name, node.task_id(3)) == ("b-1[8]", "b-1.1.3")
    machine = BatchTasks(found, [Row(node.name, NodeState.ACTIVE, launches=3)])
    assert machine.find("b-1.1.3") is machine.tasks[2]
    for other in ("b-1.1.2", "b-1.1.4", "b-1.2.1", "c.0.1", "a.0", "a.0.x", "a.-1.1", ""):
        assert machine.find(other) is None
    machine.on_end(machine.tasks[2], Outcome.STOPPED)
    assert machine.find("b-1.1.3") is None


def test_the_digest_is_of_names_and_dependencies() -> None:
    text = "[tasks.a]\nshell = 'x'\n[tasks.b]\nshell = 'x'\nafter = 'a'\n"
    assert plan(text).digest() == plan(text + "retries = 3\n").digest()
    assert plan(text).digest() != plan(text.replace("after", "after_any")).digest()


def test_two_large_arrays_have_a_small_graph() -> None:
    began = time.process_time()
    found = plan("""
        [tasks.a]
        shell = "x"
        array = 40000
        [tasks.b]
        shell = "x"
        array = 40000
        after = ["a", "a[{i}]"]
    """)
    assert found.count == 80_000
    assert sum(len(node.dependents) for node in found.nodes) == 120_000
    assert time.process_time() - began < 10


def test_a_task_of_several_nodes_is_a_gang() -> None:
    found = plan(
        "[tasks.a]\nshell = 'echo {i}'\narray = [7, 8]\nnodes = 3\nsame = 'rack'\nrestarts = 4\n"
    )
    step, node = found.job.steps[0], found.nodes[1]
    ids = node.member_ids(2)
    assert ids == ["a.1.2.0", "a.1.2.1", "a.1.2.2"]
    tasks = step.made(1, ids, "title")
    assert [task.task_id for task in tasks] == ids
    assert {task.command.shell for task in tasks} == {"echo 8"}
    assert [task.resources["ports"] for task in tasks] == [1000, 0, 0]
    members = [task.info.gang for task in tasks]
    assert [(each.rank, each.size) for each in members if each] == [(0, 3), (1, 3), (2, 3)]
    assert {each.placement for each in members if each} == {GangPlacement("rack", "host")}
    assert {each.restarts for each in members if each} == {4}


@pytest.mark.parametrize(
    ("keys", "placement"),
    [
        ("pack = true", GangPlacement(pack=True)),
        ("same = 'host'", GangPlacement(same="host")),
        ("spread = 'rack'", GangPlacement(spread="rack")),
    ],
)
def test_a_gang_is_placed_as_its_keys_say(keys: str, placement: GangPlacement) -> None:
    (step,) = plan(f"[tasks.a]\nshell = 'x'\nnodes = 2\n{keys}").job.steps
    member = step.made(0, ["x", "y"])[0].info.gang
    assert member is not None
    assert member.placement == placement


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("nodes = 0", "tasks.a.nodes: must be between 1 and 256, not 0"),
        ("pack = true", "tasks.a.pack: needs `nodes`"),
        ("nodes = 2\nsame = ''", "tasks.a.same: needs the name of an attribute, or `host`"),
        ("nodes = 2\nspread = ''", "tasks.a.spread: needs the name of an attribute, or `host`"),
        ("nodes = 2\npack = true\nspread = 'rack'", "tasks.a: a gang is packed or spread"),
        ("nodes = 2\nbeside.b.shell = 'x'", "tasks.a: a task with `nodes` has no tasks beside it"),
        ("nodes = 2\nrequeue = true", "gang"),
    ],
)
def test_a_gang_that_cannot_be_is_refused(keys: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        plan(f"[tasks.a]\nshell = 'x'\n{keys}")
    assert message in str(caught.value)
