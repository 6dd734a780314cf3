"""The experiments on the DRF paper's section 7 and on traces, small."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from croupier.ctl.__main__ import main
from croupier.lab.experiments import facebook, fig8, fig9_12, openb
from croupier.lab.traces import read_nodes, read_pods, read_swim
from croupier.model.errors import InvalidRequest
from croupier.sim.experiment import Options, Result, Simulated
from croupier.sim.machine import Even
from croupier.sim.report import write_csv

DATA = Path(__file__).parents[2] / "unit/sim/data"


def ignore(done: float, text: str = "") -> None:
    assert 0 <= done <= 1


def failed(result: Result) -> list[str]:
    return [f"{check.what}: {check.got}" for check in result.checks if not check.passed]


@pytest.fixture(scope="module")
def figure_8() -> Result:
    return fig8.run(Options(), ignore)


class TestFigure8:
    def test_shares_are_as_in_the_paper(self, figure_8: Result) -> None:
        assert failed(figure_8) == []
        names = [plot.name for plot in figure_8.plots]
        assert names == ["fig8_job1", "fig8_job2", "fig8_dominant"]

    def test_the_same_seed_gives_the_same_files(
        self, figure_8: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The command writes the same files; it also reports its speed and draws plots."""
        main(["simulate", "drf-paper-fig8", "--out", str(tmp_path / "command")])
        out, err = capsys.readouterr()
        assert "minutes 0 to 2: share of mem of job1" in out
        assert "times real time" in err
        assert (tmp_path / "command" / "fig8_dominant.png").stat().st_size > 10_000
        write_csv(figure_8, tmp_path / "function")
        for path in sorted((tmp_path / "function").iterdir()):
            assert path.read_bytes() == (tmp_path / "command" / path.name).read_bytes()

    def test_another_seed_gives_another_result(self, figure_8: Result) -> None:
        other = fig8.run(Options(seed=7), ignore)
        assert other.tables != figure_8.tables
        assert failed(other) == []


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig9_12, "RUN_S", 200.0)


@pytest.mark.usefixtures("short_runs")
class TestFigures9To12:
    def test_drf_completes_the_most_jobs_of_both_kinds(self) -> None:
        drf, *others = [fig9_12.run_scheme(scheme, seed=3) for scheme in fig9_12.schemes()]
        assert drf.scheme == "DRF"
        for other in others:
            assert drf.small_jobs > other.small_jobs, other
            assert drf.large_jobs > other.large_jobs, other
            assert drf.small_s < other.small_s, other
            assert drf.large_s < other.large_s, other

    def test_figure_9_is_compared_with_the_paper(self) -> None:
        outcomes = [
            fig9_12.Fig9Outcome(scheme.name, 1.0, float(large), 1.0, 1.0, 0.7, 0.7, Simulated(1, 1))
            for scheme, large in zip(fig9_12.schemes(), (30, 24, 15, 9, 5, 13), strict=True)
        ]
        result = fig9_12.report({"this model": outcomes})
        (table,) = [each for each in result.tables if each.name == "fig9_paper"]
        assert [row[:3] for row in table.rows] == [
            ("DRF", 35, 30.0),
            ("3 slots", 33, 24.0),
            ("4 slots", 30, 15.0),
            ("5 slots", 17, 9.0),
            ("6 slots", 8, 5.0),
            ("CPU fair", 13, 13.0),
        ]
        checks = {check.what: check for check in result.checks}
        assert checks["CPU fairness completes fewer large jobs than 4 slots (figure 9)"].passed

    def test_without_a_cost_of_paging_overcommitting_pays(self) -> None:
        slots = fig9_12.schemes()[4]
        assert slots.name == "6 slots"
        free = fig9_12.run_scheme(slots, seed=3, paging=Even(0.0))
        costly = fig9_12.run_scheme(slots, seed=3)
        assert free.large_jobs > 2 * costly.large_jobs


class TestFacebook:
    def test_drf_saves_time_on_a_crowded_cluster(self) -> None:
        trace = [job for job in read_swim(DATA) if job.map_input < 2e11][::4]
        runs = [
            facebook.run_jobs(name, trace, 10, uses_slots, 0, ignore)
            for name, uses_slots in (("DRF", False), ("slots", True))
        ]
        result = facebook.compare(*runs)
        checks = {check.what: check for check in result.checks}
        assert checks["every job was done under both"].passed
        assert checks["CPU in use while tasks wait for room"].passed, failed(result)
        assert result.simulated is not None
        drf, slots = runs
        assert drf.finished_at < slots.finished_at

    def test_checks_are_skipped_if_no_task_waits(self, capsys: pytest.CaptureFixture[str]) -> None:
        """No task waits, so DRF cannot do better."""
        assert main(["simulate", "facebook", "--data", str(DATA), "--scale", "0.01"]) == 0
        out = capsys.readouterr().out
        assert "nothing was contended: no task waited for room" in out
        assert "run more with a larger --scale" in out
        assert "1 checks passed, 0 failed, 5 not judged" in out
        assert "FAIL" not in out

    def test_the_window_is_the_busy_hour_or_the_whole_trace(self) -> None:
        window = facebook.window(Options(data=DATA, scale=0.1))
        assert window
        assert all(job.submit_s < 360 for job in window)

    def test_a_window_without_jobs_is_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="no job of the trace is submitted"):
            facebook.window(Options(data=DATA, scale=1e-6))

    def test_without_data_the_error_names_the_source(self) -> None:
        with pytest.raises(InvalidRequest, match=r"--data is missing.*SWIM"):
            facebook.run(Options(), ignore)


def write_openb(folder: Path) -> None:
    """Write a synthetic cluster and pods in the format of the trace."""
    rng = random.Random(4)
    nodes = [("cpu", 32000, 131072, 0, "")] * 8 + [("gpu", 96000, 393216, 8, "G2")] * 24
    with (folder / "openb_nodes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("sn", "cpu_milli", "memory_mib", "gpu", "model"))
        writer.writerows((f"{name}{i}", *rest) for i, (name, *rest) in enumerate(nodes))
    kinds = [(8000, 1, 1000), (6000, 1, 460), (4000, 1, 810), (1000, 0, 0), (80000, 8, 1000)]
    titles = "name cpu_milli memory_mib num_gpu gpu_milli qos creation_time deletion_time"
    with (folder / "openb_pods.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(titles.split())
        for i, (cpu, gpus, milli) in enumerate(rng.choices(kinds, (50, 20, 15, 20, 4), k=190)):
            qos = rng.choice(("LS", "BE"))
            writer.writerow((f"p{i}", cpu, 8192, gpus, milli, qos, i, i + rng.randrange(60, 9000)))


class TestOpenb:
    def test_packing_keeps_whole_nodes(self, tmp_path: Path) -> None:
        write_openb(tmp_path)
        nodes, pods = read_nodes(tmp_path), read_pods(tmp_path)
        runs = {
            order: openb.run_order(order, nodes, openb.fill(pods), 0, ignore)
            for order in ("pack", "spread")
        }
        placed = {order: run.whole_nodes()[0] for order, run in runs.items()}
        assert placed["pack"] > placed["spread"]
        assert runs["pack"].useless < runs["spread"].useless

    def test_ended_pods_make_room_for_waiting_ones(self, tmp_path: Path) -> None:
        write_openb(tmp_path)
        nodes, pods = read_nodes(tmp_path), read_pods(tmp_path)
        arrivals = openb.churn(pods, 8 * 3, seed=1)
        run = openb.run_order("random", nodes[8:11], arrivals, 1, ignore)
        assert 0.5 < run.series.mean("taken", 3600) <= 1.0
        assert run.wait(8, 8) > 0
        assert run.unplaced < len(arrivals) / 4
        result = openb.report([run] * 3, [run] * 3, 24)
        assert len(result.tables[0].rows) == len(result.tables[1].rows) == 3


class TestCommand:
    @pytest.mark.parametrize("scale", ["0", "-1", "nan", "1e9"])
    def test_an_unusable_scale_is_refused(
        self, scale: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["simulate", "facebook", "--data", str(DATA), "--scale", scale]) == 2
        assert "must be above 0" in capsys.readouterr().err

    def test_a_malformed_trace_is_one_line_of_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "t.tsv"
        path.write_text("a\t1\t1\t1\t1\t1\nbroken\n")
        assert main(["simulate", "facebook", "--data", str(path)]) == 2
        err = capsys.readouterr().err
        assert "t.tsv, line 2" in err
        assert err.count("\n") == 1
