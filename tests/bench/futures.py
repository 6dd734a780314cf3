"""Calls per second of `ClusterExecutor`, beside `ProcessPoolExecutor` in the same run.

    python -m tests.bench.futures [--workers N] [--calls N] [--rounds N]

A master and an agent run on this machine. Both executors have the same number of workers, which are
started before the clock is; rounds of the two alternate. JSON lines:
`{"scenario": "submit"|"map", "call": "no-op"|"1 ms", "executor": ..., "per_second": ...}` with the
medians, `first_call_ms` for the time from the first `submit` to its result, and `ratio` to the
process pool.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import cloudpickle

from croupier.futures import ClusterExecutor
from tests.harness.real_local import running_local


def nothing(_: int) -> None:
    """Return at once."""


def millisecond(_: int) -> None:
    """Use the processor for a millisecond."""
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass


CALLS: dict[str, Callable[[int], None]] = {"no-op": nothing, "1 ms": millisecond}


def submitted(executor: Executor, function: Callable[[int], None], calls: int) -> float:
    """Return calls per second of `submit`."""
    began = time.perf_counter()
    futures = [executor.submit(function, number) for number in range(calls)]
    wait(futures)
    return calls / (time.perf_counter() - began)


def mapped(executor: Executor, function: Callable[[int], None], calls: int) -> float:
    """Return calls per second of `map` with chunks of 50."""
    began = time.perf_counter()
    for _ in executor.map(function, range(calls), chunksize=50):
        pass
    return calls / (time.perf_counter() - began)


SCENARIOS = {"submit": submitted, "map": mapped}


def first_call_ms(executor: Executor) -> float:
    """Return the time of the first call, with the start of a worker."""
    began = time.perf_counter()
    executor.submit(abs, -1).result()
    return (time.perf_counter() - began) * 1000


def warm(executor: Executor, workers: int) -> None:
    """Start all workers."""
    wait([executor.submit(time.sleep, 0.5) for _ in range(workers)])


def say(line: dict[str, Any]) -> None:
    """Print a JSON line."""
    print(json.dumps(line), flush=True)


def compare(executors: dict[str, Executor], options: argparse.Namespace) -> None:
    """Measure all scenarios."""
    for scenario, measure in SCENARIOS.items():
        for call, function in CALLS.items():
            figures: dict[str, list[float]] = {name: [] for name in executors}
            for _ in range(options.rounds):
                for name, executor in executors.items():
                    figures[name].append(measure(executor, function, options.calls))
            medians = {name: statistics.median(found) for name, found in figures.items()}
            for name, median in medians.items():
                line = {"scenario": scenario, "call": call, "executor": name}
                ratio = round(median / medians["process pool"], 2)
                say({**line, "per_second": round(median), "ratio": ratio})


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_local(Path(scratch), "--agents", "1") as local,
        ProcessPoolExecutor(options.workers, mp_context=context) as pool,
        ClusterExecutor(options.workers, cpus=0.1, mem="256MB", master=local.master) as cluster,
    ):
        executors: dict[str, Executor] = {"process pool": pool, "cluster": cluster}
        for name, executor in executors.items():
            first = round(first_call_ms(executor))
            say({"scenario": "first call", "executor": name, "first_call_ms": first})
            warm(executor, options.workers)
        compare(executors, options)


if __name__ == "__main__":
    main()
