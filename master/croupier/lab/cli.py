"""`croupier simulate`: flags and help.

Rule: each command imports its modules when it runs, so that `--help` stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from croupier.lab.registry import EXPERIMENTS, ExperimentEntry
from croupier.model.errors import InvalidRequest
from croupier.process.cli import make_app
from croupier.sim.experiment import Options, Result
from croupier.sim.progress import progress_bar

MAX_SCALE = 1000

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

    Parameters
    ----------
    file
        A JSON file that follows the schema in tests/vectors/fairness.json.
    """
    from croupier.lab.vectors.command import check_file

    return check_file(file)


def _register(name: str, entry: ExperimentEntry) -> None:
    def run(*, seed: int = 0, out: Path | None = None) -> int:
        return run_experiment(name, Options(seed), out)

    def run_on_data(
        *, data: Path | None = None, scale: float = 1.0, seed: int = 0, out: Path | None = None
    ) -> int:
        return run_experiment(name, Options(seed, data, scale), out)

    chosen: Callable[..., int] = run_on_data if entry.needs_data else run
    of_data = (
        "data\n    Directory of the trace files. Without it, the error says where to get them.\n"
        f"scale\n    {entry.scale.replace(chr(10), chr(10) + '    ')}\n"
    )
    chosen.__doc__ = (
        f"{entry.summary}.\n\nParameters\n----------\n"
        f"{of_data if entry.needs_data else ''}"
        "seed\n    The same seed gives the same result.\n"
        "out\n    Directory for CSV files, and for plots if matplotlib is installed.\n"
    )
    app.command(chosen, name=name)


for _name, _entry in EXPERIMENTS.items():
    _register(_name, _entry)


def run_experiment(name: str, options: Options, out: Path | None) -> int:
    """Run an experiment, print its result, and write files to `out`; return the exit code.

    Raises:
        InvalidRequest: if an option is unusable or `out` cannot be written.
    """
    from croupier.sim.report import print_result

    if not 0 < options.scale <= MAX_SCALE:
        raise InvalidRequest(f"--scale {options.scale:g}: it must be above 0, at most {MAX_SCALE}")
    experiment = EXPERIMENTS[name].load()
    print(f"{name}, seed {options.seed}\n{experiment.expected}", flush=True)
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
    from croupier.lab.plots import can_plot, write_plots
    from croupier.sim.report import write_csv

    try:
        written = write_csv(result, folder)
        if result.plots and can_plot():
            written += write_plots(result, folder)
        elif result.plots:
            print("no plots were drawn: pip install 'croupier[lab]'")
    except OSError as error:
        raise InvalidRequest(f"--out {folder}: {error.strerror or error}") from None
    for path in written:
        print(f"wrote {path}")
