"""`croupier simulate`: the table of experiments, flags, help, and files of results.

Rule: each command imports its modules when it runs, so that `--help` stays fast.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from croupier.model.errors import InvalidRequest
from croupier.process.cli import make_app
from croupier.sim.experiment import Experiment, Options, Plot, Result
from croupier.sim.report import progress_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SCALE = 1000


@dataclass(frozen=True, slots=True)
class ExperimentEntry:
    """An experiment's module, and a one-line summary.

    Attributes:
        module: within `experiments`.
        needs_data: whether it reads trace files, from `--data`.
        scale, default_scale: the help and the default of `--scale`, if it has a meaning.
    """

    module: str
    summary: str
    needs_data: bool = False
    scale: str = ""
    default_scale: float = 1.0

    def load(self) -> Experiment:
        """Import the experiment."""
        return cast("Experiment", import_module(f"croupier.lab.experiments.{self.module}"))


_PART_OF_SWIM: Final = "Fraction of SWIM's jobs to run, and ten times as large a one of openb's."

EXPERIMENTS: Final[dict[str, ExperimentEntry]] = {
    "drf-paper-fig8": ExperimentEntry(
        "fig8", "Figure 8 of the DRF paper: shares of two jobs whose demands change"
    ),
    "drf-paper-fig9-12": ExperimentEntry(
        "fig9_12",
        "Figures 9 to 12 of the DRF paper: jobs done and response with DRF, slots and CPU fairness",
    ),
    "facebook": ExperimentEntry(
        "facebook",
        "Section 7.3 of the DRF paper: MapReduce jobs at Facebook, DRF against slots",
        needs_data=True,
        scale=(
            "Hours of the trace to run. The default, one busy hour, has 218,000 tasks and takes\n"
            "minutes. 19 is the whole trace, the paper's day: 3.9 million tasks, about an hour."
        ),
    ),
    "openb": ExperimentEntry(
        "openb",
        "Agent orders on Alibaba's GPU nodes and pods: fragmentation and waits",
        needs_data=True,
        scale="Fraction of the nodes and pods to run; 1 is all of them, and takes minutes.",
    ),
    "lined-up": ExperimentEntry(
        "lined_up",
        "Short tasks lined up at agents: throughput, and the wait of a framework that comes later",
    ),
    "past-use": ExperimentEntry(
        "past_use",
        "A week in which one team used much: waits with a half-life, Slurm's fair tree and Karma",
        needs_data=True,
        scale="Fraction of the jobs to run; 1 is all of them, and takes minutes.",
    ),
    "forecasts": ExperimentEntry(
        "forecasts",
        "Starts of queued tasks foretold in a week of two traces: the error by horizon",
        needs_data=True,
        scale="Fraction of the jobs to run; 1 is all of them, and takes an hour.",
    ),
    "gangs": ExperimentEntry(
        "gangs",
        "Gangs among single tasks on two traces: waits and what is lost, with gathering or not",
        needs_data=True,
        scale=_PART_OF_SWIM,
        default_scale=0.025,
    ),
    "backfill": ExperimentEntry(
        "backfill",
        "The same beside a reservation, with declared times and without: waits and what is lost",
        needs_data=True,
        scale=_PART_OF_SWIM,
        default_scale=0.025,
    ),
    "budgets": ExperimentEntry(
        "budgets",
        "A week of two traces with a budget for each day, by what happens once it is used up",
        needs_data=True,
        scale=_PART_OF_SWIM,
        default_scale=0.02,
    ),
    "properties": ExperimentEntry(
        "properties",
        "Table 2 of the DRF paper: search for violations of each property by each policy",
    ),
    "hierarchy": ExperimentEntry(
        "hierarchy", "Policies on a tree of pools under churn: which ones meet the entitlements"
    ),
}

app = make_app(
    "simulate",
    "Run an experiment in virtual time, or golden vectors, against the real allocator.\n\n"
    "An experiment states what it expects, checks it, and exits with 1 if a check fails.",
    reads_environment=False,
)


@app.command(name="list")
def list_experiments() -> None:
    """List the experiments."""
    width = max(len(name) for name in EXPERIMENTS)
    for name, entry in EXPERIMENTS.items():
        print(f"{name.ljust(width)}  {entry.summary}")


@app.command(name="vectors")
def run_vectors(file: Path, /) -> int:
    """Run golden vectors; print the expected and actual value of each failure, and a summary.

    Args:
        file: A JSON file that follows the schema in tests/vectors/fairness.json.
    """
    from croupier.lab.vectors.check import check_file

    return check_file(file)


def _register(name: str, entry: ExperimentEntry) -> None:
    def run(*, seed: int = 0, out: Path | None = None) -> int:
        return run_experiment(name, Options(seed), out)

    def run_on_data(
        *,
        data: Path | None = None,
        scale: float = entry.default_scale,
        seed: int = 0,
        out: Path | None = None,
    ) -> int:
        return run_experiment(name, Options(seed, data, scale), out)

    chosen: Callable[..., int] = run_on_data if entry.needs_data else run
    of_data = (
        "    data: Directory of the trace files. Without it, the error says where to get them.\n"
        f"    scale: {entry.scale.replace(chr(10), chr(10) + ' ' * 8)}\n"
    )
    chosen.__doc__ = (
        f"{entry.summary}.\n\nArgs:\n"
        f"{of_data if entry.needs_data else ''}"
        "    seed: Seed of the random choices; the same seed gives the same result.\n"
        "    out: Directory for CSV files, and for plots if matplotlib is installed.\n"
    )
    app.command(chosen, name=name)


for _name, _entry in EXPERIMENTS.items():
    _register(_name, _entry)


def run_experiment(name: str, options: Options, out: Path | None) -> int:
    """Run an experiment, print and save its result; return the exit code. Raises InvalidRequest."""
    from croupier.sim.report import print_result

    if not 0 < options.scale <= MAX_SCALE:
        raise InvalidRequest(f"--scale {options.scale:g}: it must be above 0, at most {MAX_SCALE}")
    experiment = EXPERIMENTS[name].load()
    print(f"{name}, seed {options.seed}\n{experiment.EXPECTED}", flush=True)
    with progress_bar() as progress:
        begun = perf_counter()
        result = experiment.run(options, progress)
        took_s = perf_counter() - begun
    print_result(result, sys.stdout)
    if result.simulated is not None:
        print(result.simulated.speed(took_s), file=sys.stderr)
    if out is not None:
        _write_files(result, out)
    return 0 if result.passed else 1


def _write_files(result: Result, folder: Path) -> None:
    from croupier.sim.report import write_csv

    try:
        written = write_csv(result, folder)
        if result.plots and importlib.util.find_spec("matplotlib") is not None:
            written += _write_plots(result, folder)
        elif result.plots:
            print("no plots were drawn: pip install 'croupier[lab]'")
    except OSError as error:
        raise InvalidRequest(f"--out {folder}: {error.strerror or error}") from None
    for path in written:
        print(f"wrote {path}")


def _write_plots(result: Result, folder: Path) -> list[Path]:
    """Write one PNG per plot to `folder`, and return the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    written = []
    for plot in result.plots:
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        _draw(plot, axes)
        path = folder / f"{plot.name}.png"
        figure.savefig(path, dpi=120)
        plt.close(figure)
        written.append(path)
    return written


def _draw(plot: Plot, axes: Axes) -> None:
    width = 0.8 / max(len(plot.lines), 1)
    for index, line in enumerate(plot.lines):
        xs = [x for x, _ in line.points]
        ys = [y for _, y in line.points]
        if plot.is_bars:
            shift = (index - (len(plot.lines) - 1) / 2) * width
            bars = axes.bar([x + shift for x in xs], ys, width, label=line.label)
            axes.bar_label(bars, fmt="%.3g", fontsize=8)
        elif plot.is_step:
            axes.step(xs, ys, where="post", label=line.label)
        else:
            axes.plot(xs, ys, label=line.label)
    if plot.ticks:
        axes.set_xticks(range(len(plot.ticks)), plot.ticks)
    axes.set_title(plot.title)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(visible=True, alpha=0.3)
    if all(y >= 0 for line in plot.lines for _, y in line.points):
        # Readers compare the heights of bars and shares.
        axes.set_ylim(bottom=0)
    if len(plot.lines) > 1:
        axes.legend()
