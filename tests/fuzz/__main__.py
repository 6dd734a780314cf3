"""`python -m tests.fuzz --seconds 600 --seed 1`: attack real daemons, and judge them."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.campaign import RATE, Campaign, Report


def main() -> int:
    """Run a campaign, print its report, and return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--rate", type=float, default=RATE, help="messages a second")
    parser.add_argument("--no-auth", action="store_true", help="a master without authentication")
    parser.add_argument("--only", default="", help="part of the names of attacks: no others")
    parser.add_argument("--keep", type=Path, help="folder for logs and cases; default: a new one")
    given = parser.parse_args()
    seed = given.seed or time.time_ns() % 1_000_000
    folder = given.keep or Path(tempfile.mkdtemp(prefix="croupier-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, {given.seconds:g} s, logs in {folder}", flush=True)
    # Daemons and honest peers come first.
    os.nice(5)
    campaign = Campaign(
        folder, seed, given.seconds, given.rate, has_auth=not given.no_auth, only=given.only
    )
    report = asyncio.run(campaign.run())
    print_report(report)
    if report.findings:
        print(f"reproduce with SEED={seed}; the latest cases of each attack are in {folder}")
    return 1 if report.findings else 0


def print_report(report: Report) -> None:
    """Print what was sent, what honest peers saw, and all findings."""
    for name, sent in report.sent.most_common():
        answers = ", ".join(
            f"{kind} {count}" for kind, count in report.answers[name].most_common(6)
        )
        print(f"{sent:>9} {name}  ({answers})")
    print(f"{report.sent.total():>9} messages in {report.seconds:.0f} s")
    for name in report.alone:
        alone, beside = report.alone[name], report.beside.get(name, [])
        print(f"honest {name}, ms: alone p50, p99 and number {alone}, beside {beside}")
    print(f"honest tasks {report.tasks}; peak resident MiB {report.rss_mib}")
    for finding in report.findings:
        print(f"FOUND {finding}")
    print(f"{len(report.findings)} findings")


if __name__ == "__main__":
    sys.exit(main())
