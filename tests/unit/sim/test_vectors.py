"""Golden vectors: all of ours pass, wrong numbers fail, and no file causes a traceback."""

from __future__ import annotations

import copy
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from croupier.ctl.__main__ import main
from croupier.lab.engine_rule import EngineRule
from croupier.lab.vectors.check import check_text
from croupier.master.allocator import Allocator
from croupier.master.allocator.grant import Grant
from croupier.master.allocator.policies import Fifo
from tests.harness.allocator_invariants import check_allocator, check_tree
from tests.harness.effort import portion

FOLDER = Path(__file__).resolve().parents[2] / "vectors"
FILES = ("fairness.json", "shapes.json")


def document(name: str = "fairness.json") -> dict[str, Any]:
    found = json.loads((FOLDER / name).read_text())
    assert isinstance(found, dict)
    return found


def vector(name: str) -> dict[str, Any]:
    for file in FILES:
        for found in document(file)["vectors"]:
            if found["name"] == name:
                return dict(copy.deepcopy(found))
    raise AssertionError(f"no vector {name}")


def failures_of(*vectors: object) -> str:
    """Return all failures of a file with these vectors as one text."""
    text = json.dumps({"schema": {"version": 1}, "vectors": vectors})
    return "\n".join(
        f"{result.name} {f.where} expected {f.expected} got {f.got}"
        for result in check_text(text)
        for f in result.failures
    )


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the engine's invariants whenever it comes to rest, and after some picks of a rule."""
    run, catch_up, picks = Allocator.run, EngineRule.catch_up, itertools.count()

    def checked_run(self: Allocator, now: float, budget: int = 2000) -> list[Grant]:
        grants = run(self, now, budget)
        if not self.has_dirty_agents:
            check_allocator(self)
        return grants

    def checked_catch_up(self: EngineRule) -> None:
        catch_up(self)
        if next(picks) % 20 == 0:
            check_tree(self.tree)

    monkeypatch.setattr(Allocator, "run", checked_run)
    monkeypatch.setattr(EngineRule, "catch_up", checked_catch_up)


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("name", FILES)
def test_all_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "vectors", str(FOLDER / name)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{len(document(name)['vectors'])} passed, 0 failed"]


def numbers_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all numbers within `expected`."""
    if isinstance(value, dict):
        return [p for key, item in value.items() for p in numbers_of(item, (*path, key))]
    if isinstance(value, list):
        return [p for key, item in enumerate(value) for p in numbers_of(item, (*path, key))]
    try:
        float(value if not isinstance(value, str) else value.split("/")[0])
    except (TypeError, ValueError):
        return []
    return [path]


@pytest.mark.parametrize("name", FILES)
def test_no_expected_number_goes_unchecked(name: str) -> None:
    """Every vector fails if any one of its expected numbers changes."""
    chance = random.Random(1)
    unchecked = []
    for found in document(name)["vectors"]:
        if sum(float(str(c).split("/")[0]) for c in found["capacity"] or ()) > 500:
            continue
        places = numbers_of(found["expected"])
        if found["mode"] == "envy":
            places = []
        for place in chance.sample(places, min(len(places), portion(5))):
            wrong = copy.deepcopy(found)
            at = wrong["expected"]
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = "123456789/7"
            others = [v for v in document(name)["vectors"] if v["name"] != found["name"]]
            if not is_refuted(wrong, others):
                unchecked.append((found["name"], place))
    assert unchecked == []


def is_refuted(wrong: dict[str, Any], others: list[dict[str, Any]]) -> bool:
    """Return whether the first vector of a file fails; it may refer to the others."""
    return not next(check_text(json.dumps({"vectors": [wrong, *others]}))).passed


def test_definitions_import_nothing_of_the_engine() -> None:
    script = "import sys\nimport tests.reference.preemption, tests.reference.rules\n"
    script += "sys.exit(any(name.startswith('croupier.master') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=FOLDER.parents[1], check=False)
    assert done.returncode == 0


def test_a_failure_shows_expected_and_got(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = vector("drf-4.1-continuous")
    wrong["expected"]["tasks"]["B"] = "9/4"
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({"vectors": [wrong, vector("ceei-5.2")]}))
    assert main(["simulate", "vectors", str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAIL drf-4.1-continuous: reference: tasks.B",
        "     expected 9/4",
        "     got      2",
        "1 passed, 1 failed",
    ]


def test_tolerance_applies_to_numbers() -> None:
    near = vector("drf-4.1-continuous")
    near["expected"]["tasks"]["B"] = 2.009
    assert "tasks.B expected 2009/1000 got 2" in failures_of(near)
    near["tolerance"] = 0.01
    assert failures_of(near) == ""


def test_a_tolerance_in_tasks_is_converted_for_shares() -> None:
    found = vector("yandex-naive-hdrf-counterexample-h-drf")
    found["expected"] = {"dominant_share": {"A": "1/2", "B/B1": "1/2"}}
    assert failures_of(found) == ""
    found["expected"]["dominant_share"]["A"] = "52/100"
    assert "dominant_share.A" in failures_of(found)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"mode": "quantum"}, "mode 'quantum' is not known"),
        ({"policy": "lottery"}, "policy lottery is not known"),
        ({"policy": "single:gpu"}, "single:gpu names no resource"),
        ({"also": ["lottery"]}, "policy lottery is not known"),
        ({"expected": {"tusks": {"A": 3}}}, "expected key not understood: 'tusks'"),
        ({"expected": {"tasks": {"Z": 3}}}, "nothing of that name"),
        ({"expected": {"tasks": {}}}, "nothing is expected"),
        ({"expected": {}}, "nothing to check"),
        ({"expected": {"tasks": [3, 2]}}, "expected [3, 2]"),
        ({"expected": {"tasks": {"A": True}}}, "tasks.A expected True"),
        ({"expected": {"tasks": {"A": "three"}}}, "tasks.A expected three"),
        ({"capacity": [9]}, "not a list of 2 numbers"),
        ({"capacity": [9, -1]}, "below 0"),
        ({"capacity": [9, "1/0"]}, "not a number"),
        ({"capacity": [9, "1e999999999"]}, "not a number"),
        ({"capacity": None}, "`capacity` is missing"),
        ({"resources": []}, "`resources` is empty"),
        ({"resources": ["cpu", "cpu"]}, "names one twice"),
        ({"demands": {"A": [1, 4], "B": [3]}}, "not a list of 2 numbers"),
        ({"demands": {"": [1, 4]}}, "not a path"),
        ({"demands": {"A": [1, 4], "A/b": [3, 1]}}, "a client, and a pool"),
        ({"demands": None}, "`demands`"),
        ({"weights": {"Z": 2}}, "names Z"),
        ({"weights": {"A": 0}}, "not above 0"),
        ({"weights": {"A": [1]}}, "not one number per resource"),
        ({"backlog": {"A": -1}}, "below 0"),
        ({"tolerance": "much"}, "`tolerance` is 'much'"),
        ({"tie_break": ["A", "A"]}, "has a name twice"),
        ({"tie_break": ["A", "C"]}, "names C"),
        ({"nodes": [{"count": 1.5, "capacity": [9, 18]}]}, "not a whole number"),
        ({"nodes": [{"count": 1, "capacity": [9, 18], "gpu": 1}]}, "unknown key 'gpu'"),
        ({"tree": {"P": {"weight": 2}}}, "names P"),
        ({"events": ["a flood"]}, "does not use `events`"),
        ({"hints": {"A": [1, 1]}}, "does not use `hints`"),
        ({"name": 7}, "`name` is 7"),
        ({"name": ""}, "required"),
        ({"demands": {"P/A": [1, 4], "B": [3, 1]}}, "pools"),
    ],
)
def test_unknown_or_malformed_fields_are_failures(change: dict[str, Any], what: str) -> None:
    assert what in failures_of({**vector("drf-4.1-continuous"), **change})


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("bug-volcano-1661-unweighted-min", {"events": ["fill half"]}, "event not understood"),
        (
            "bug-volcano-1661-unweighted-min",
            {"events": ["one task of eve finishes"]},
            "names eve",
        ),
        ("volcano-rescaling", {"guarantee": {"sci": [1, 1]}}, "knows no guarantees"),
        ("volcano-rescaling", {"backlog": {"sci": "1/2"}}, "not a whole number"),
        ("volcano-rescaling", {"demands": {"sci": [0, 0]}, "weights": None, "tree": None,
                               "backlog": None}, "never ends"),
        ("yandex-fifo-best", {"placement": "magic"}, "placement magic"),
        ("mesos-7.2-slots-3", {"nodes": [{"count": 3, "capacity": [8, 6]}]}, "how many slots"),
        ("cx-discrete-strategy-lie", {}, "no vector of the file tells what 1 needs in truth"),
        ("yandex-preemption-night", {"source": "a lecture"}, "`initial` is missing"),
        ("bug-kueue-7101-preempt-4", {"initial": {"p1": 5}}, "do not fit"),
        ("bug-mesos-6111-decliners", {"capacity": [20, 21]}, "no number of tasks of needy"),
        ("jp-envy-example", {"expected": {"envies": []}}, "needs `expected.bundles`"),
        ("hint-lie-complementary", {"policy": "naive-hdrf"}, "does not look at what is declared"),
    ],
)  # fmt: skip
def test_fields_that_a_mode_cannot_use_are_failures(
    name: str, change: dict[str, Any], what: str
) -> None:
    assert what in failures_of({**vector(name), **change})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            {"policy": "asset", "weights": {"A": [1, 2]}},
            "policy asset knows no weights by resource",
        ),
        ({"capacity": [f"{10**25}/7", 18]}, "the engine cannot represent this vector"),
    ],
)
def test_a_vector_that_the_engine_cannot_represent_is_a_failure(
    change: dict[str, Any], what: str
) -> None:
    found = {**vector("drf-4.1-continuous"), "mode": "discrete", **change}
    assert what in failures_of(found)


def test_a_vector_without_machines_has_no_tasks() -> None:
    found = vector("drf-thm6-before")
    found.update(nodes=[], expected={"left": [0, 0]}, mode="discrete")
    assert failures_of(found) == ""


def test_a_duplicate_name_is_a_failure() -> None:
    found = vector("drf-4.1-continuous")
    assert "another vector has this name" in failures_of(found, found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"vectors": {}}',
        '{"vectors": [], "more": 1}',
        '{"schema": {"version": 2}, "vectors": []}',
        '{"schema": 1, "vectors": []}',
        '{"vectors": [NaN]}',
        '{"vectors": [1e999999]}',
        '{"vectors": [' + "9" * 5000 + "]}",
        '{"vectors": [{"name": 1, "name": 2}]}',
        "[" * 100_000,
        "\x00",
    ],
)
def test_malformed_files(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main(["simulate", "vectors", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{path}: ")
    assert lines[1] == "0 passed, 1 failed"


@pytest.mark.parametrize("entry", [None, 1, "x", [], {}, {"name": None}, {"expected": 1}])
def test_entries_that_are_not_vectors_are_failures(entry: object) -> None:
    assert "vector 1" in failures_of(entry)


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "vectors"]) == 2
    assert main(["simulate", "vectors", str(tmp_path / "none.json")]) == 2
    assert main(["simulate", "vectors", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_deep_nesting_is_a_failure_only() -> None:
    for depth in (120, 400):
        found = vector("drf-4.1-continuous")
        found["expected"] = {"tasks": json.loads("[" * depth + "]" * depth)}
        assert "nested too deeply" in failures_of(found)
    found = vector("drf-4.1-continuous")
    found["demands"] = {"/".join("x" * 40): [1, 1]}
    assert "not a path" in failures_of(found)


ODD: list[Any] = [None, 0, 1, -1, 0.5, "", "x", "1/3", "0/0", "A/B", True, 10**9]
ODD += [[], [1], [[]], {}, {"a": 1}]


def mangled(value: Any, chance: random.Random) -> Any:
    """Return `value` with a part replaced, removed or renamed."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        found = dict(value)
        if chance.random() < 0.1:
            del found[key]
        elif chance.random() < 0.1:
            found[key + "x"] = found.pop(key)
        else:
            found[key] = mangled(value[key], chance)
        return found
    if isinstance(value, list) and value and chance.random() < 0.9:
        index = chance.randrange(len(value))
        cut = chance.random() < 0.1
        return [
            *value[:index],
            *([] if cut else [mangled(value[index], chance)]),
            *value[index + 1 :],
        ]
    return chance.choice(ODD)


def test_mangled_vectors_never_raise() -> None:
    """Any change of a vector gives a result, never an exception."""
    chance = random.Random(7)
    small = [
        v
        for file in FILES
        for v in document(file)["vectors"]
        if sum(float(str(c).split("/")[0]) for c in v["capacity"] or ()) < 250
    ]
    failed = 0
    for _ in range(400):
        found = mangled(chance.choice(small), chance)
        text = json.dumps({"schema": {"version": 1}, "vectors": [found]})
        failed += sum(not result.passed for result in check_text(text))
    assert failed > 200


FIFO = [v["name"] for name in FILES for v in document(name)["vectors"] if v["mode"] == "fifo"]


def test_the_live_policy_runs_every_fifo_vector() -> None:
    assert len(FIFO) == 5
    for name in FIFO:
        found = vector(name)
        found["expected"] = {"tasks": dict.fromkeys(found["demands"], 7)}
        assert {line.split()[1] for line in failures_of(found).splitlines()} == {"allocator:"}


def test_a_live_policy_in_reverse_order_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fifo, "turn", lambda _, leaf: -leaf.arrival)
    assert "allocator: " in failures_of(vector("yandex-fifo-first-fit"))
