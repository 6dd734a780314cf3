"""`croupier simulate`: experiments by name, their checks, and their files."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from croupier.ctl.__main__ import main
from croupier.lab.cli import EXPERIMENTS, ExperimentEntry
from croupier.lab.experiments import hierarchy, properties
from croupier.lab.solvers.continuous import asset
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Table


class Pretend:
    """An experiment whose outcome the test fixes."""

    EXPECTED = "as chosen"

    def __init__(self, *, passed: bool) -> None:
        self._passed = passed

    def run(self, options: Options, progress: Progress) -> Result:
        progress(0.5, "half")
        return Result(
            (Check("it works", "yes", "yes" if self._passed else "no", self._passed),),
            (Table("numbers", ("name", "value"), (("seed", options.seed), ("pi", 3.14159))),),
            (Plot("curve", "A curve", "time", "share", (Line("a", ((0.0, 1.0), (1.0, 0.5))),)),),
            ("a note",),
        )


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExperimentEntry, "load", lambda _: Pretend(passed=True))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == list(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_loads_and_states_what_it_expects(name: str) -> None:
    experiment = EXPERIMENTS[name].load()
    assert experiment.EXPECTED


@pytest.mark.usefixtures("pretend")
def test_the_command_prints_tables_notes_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "properties", "--seed", "7"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "properties, seed 7",
        "as chosen",
        "",
        "numbers",
        "name  value",
        "seed      7",
        "pi    3.142",
        "",
        "a note",
        "",
        "ok   it works",
        "       expected yes",
        "       got      yes",
        "1 checks passed, 0 failed",
    ]


def test_a_failed_check_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ExperimentEntry, "load", lambda _: Pretend(passed=False))
    assert main(["simulate", "properties"]) == 1
    assert "FAIL it works" in capsys.readouterr().out


@pytest.mark.usefixtures("pretend")
def test_out_writes_csv_files_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "deep" / "out"
    assert main(["simulate", "properties", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["curve.csv", "curve.png", "numbers.csv"]
    with (out / "curve.csv").open() as file:
        assert list(csv.reader(file)) == [
            ["series", "time", "share"],
            ["a", "0.0", "1.0"],
            ["a", "1.0", "0.5"],
        ]
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("pretend")
def test_without_the_extra_plots_are_missed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["simulate", "properties", "--out", str(tmp_path)]) == 0
    assert "no plots were drawn: pip install 'croupier[lab]'" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.csv", "numbers.csv"]


@pytest.mark.usefixtures("pretend")
def test_an_unwritable_out_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["simulate", "properties", "--out", str(tmp_path / "file")]) == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nosuch"], ["properties", "--seed", "x"], ["list", "more"]])
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_properties_as_in_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "TRIED", {"asset": 100, "CEEI": 40, "DRF": 100})
    result = properties.run(Options(0), lambda done, text="": None)
    assert [check for check in result.checks if not check.passed] == []


def test_properties_differ_from_the_paper_where_the_policy_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Table 2 fails with asset fairness in place of DRF."""
    monkeypatch.setattr(properties, "TRIED", {"DRF": 60})
    monkeypatch.setattr(properties, "POLICIES", (("DRF", asset),))
    result = properties.run(Options(0), lambda done, text="": None)
    wrong = [check.what for check in result.checks if not check.passed]
    assert wrong == ["DRF: sharing incentive", "DRF: bottleneck fairness"]


def test_hierarchy_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchy, "RANDOM_TREES", 4)
    monkeypatch.setattr(hierarchy, "SLOW_TREES", 0)
    monkeypatch.setattr(hierarchy, "STEPS", 150)
    result = hierarchy.run(Options(0), lambda done, text="": None)
    assert [check for check in result.checks if not check.passed] == []
