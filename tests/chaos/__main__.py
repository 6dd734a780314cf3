"""Run chaos in virtual time, against real processes, and with hosts that are cut off.

The last line sums up all.

    python -m tests.chaos [--seed N] [--seeds N] [--rounds N] [--partitions N]

0 seeds, rounds or partitions skip that part. The exit code is 1 after any violation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence


def part(module: str, *arguments: str) -> tuple[int, str]:
    """Run one part, print its output, and return its exit code and last line."""
    command = [sys.executable, "-m", module, *arguments]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=500, help="worlds in virtual time")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of real processes")
    parser.add_argument(
        "--partitions", type=int, default=2, help="rounds of hosts that are cut off"
    )
    options = parser.parse_args(argv)
    seed = ("--seed", str(options.seed))
    results = []
    if options.seeds:
        results.append(part("tests.chaos.virtual", *seed, "--seeds", str(options.seeds)))
    if options.rounds:
        results.append(part("tests.chaos.real", *seed, "--rounds", str(options.rounds)))
    if options.partitions:
        rounds = ("--partitions", "--rounds", str(options.partitions))
        results.append(part("tests.chaos.real", *seed, *rounds))
    print("chaos: " + " | ".join(last for _, last in results))
    return 1 if any(code for code, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
