"""Chaos in virtual time.

    python -m tests.chaos.virtual [--seed N] [--seeds N] [--processes N]   worlds of these seeds
    python -m tests.chaos.virtual replay SEED                              one, with its trace
    python -m tests.chaos.virtual mutants [--seeds N]                      which mutants are found

The last line is a summary. The exit code is 1 if an invariant was violated or a mutant survived.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from tests.chaos.virtual.mutants import MUTANTS
from tests.chaos.virtual.runs import Outcome, run, run_all, shrunk

LAST_LINES = 40
# Further failing seeds are printed on one line each.
MOST_SHOWN = 3


def chaos(first: int, number: int, processes: int) -> int:
    """Run worlds; return the number of worlds that violated an invariant."""
    started = time.monotonic()
    steps = happened = tasks = lined = violations = 0
    injected: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for outcome in run_all(range(first, first + number), processes):
        steps, happened = steps + outcome.steps, happened + outcome.happened
        tasks += outcome.tasks
        injected += outcome.injected
        seen += outcome.seen
        lined += bool(outcome.seen["lined up"])
        if outcome.violation:
            violations += 1
            if violations <= MOST_SHOWN:
                show(shrunk(outcome), len(outcome.faults))
            else:
                print(f"seed {outcome.seed}: {outcome.violation[:200]}", flush=True)
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(injected.items()))
    print(
        f"virtual chaos: seeds {first} to {first + number - 1}, {steps} steps, {happened} events,"
        f" {tasks} tasks ({seen['lined up']} lined up in {lined} seeds,"
        f" {seen['started from a line']} started from a line, {seen['returned']} returned),"
        f" {seen['requeued']} requeued, {seen['started in groups']} started in groups,"
        f" {seen['started in gangs']} in gangs, {seen['slots of devices']} slots of devices,"
        f" {seen['messages']} messages"
        f" ({seen['messages arrived']} arrived, {seen['messages dropped']} dropped),"
        f" {injected.total()} faults ({faults}),"
        f" {violations} violations, {time.monotonic() - started:.1f} s",
        flush=True,
    )
    return violations


def show(outcome: Outcome, before: int) -> None:
    """Print the violation, the faults that cause it, and the end of the trace."""
    print(f"\nseed {outcome.seed}: {outcome.violation}")
    print(f"    {len(outcome.faults)} of its {before} faults are enough:")
    for fault in outcome.faults:
        print(f"    {fault}")
    print("    the end of the trace:")
    quiet = ("KeepAlive(", "Heartbeat(", "Received(")
    lines = [line for line in outcome.trace if not any(word in line for word in quiet)]
    for line in lines[-LAST_LINES:]:
        print(f"    {line[:300]}")
    print(f"    whole: python -m tests.chaos.virtual replay {outcome.seed}", flush=True)


def replay(seed: int) -> int:
    """Run one world and print its whole trace."""
    outcome = run(seed, traced=True)
    print("\n".join(outcome.trace))
    print(f"seed {seed}: {outcome.violation or 'clean'}; trace {outcome.digest}")
    return bool(outcome.violation)


def mutants(limit: int, processes: int) -> int:
    """Print each mutant with the number of seeds that it takes to find it."""
    missed = 0
    print(f"{'mutant':<34} {'seeds':>5}  violation")
    for name, mutant in MUTANTS.items():
        for number, outcome in enumerate(run_all(range(1, limit + 1), processes, name), 1):
            if outcome.violation:
                print(f"{name:<34} {number:>5}  {outcome.violation[:110]}", flush=True)
                break
        else:
            missed += 1
            print(f"{name:<34}     -  NOT FOUND in {limit} seeds: {mutant.what}", flush=True)
    print(f"mutants: {len(MUTANTS)} kinds of injected bugs, {missed} not found in {limit} seeds")
    return missed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.virtual")
    parser.add_argument("what", nargs="?", choices=("run", "replay", "mutants"), default="run")
    parser.add_argument("which", nargs="?", type=int, help="the seed to replay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    if options.what == "replay":
        return replay(options.seed if options.which is None else options.which)
    if options.what == "mutants":
        return 1 if mutants(options.seeds, options.processes) else 0
    return 1 if chaos(options.seed, options.seeds, options.processes) else 0


if __name__ == "__main__":
    sys.exit(main())
