"""`croupier cron` on a real cluster: kill -9 of each part loses no run and doubles none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster, real_cluster
from tests.harness.command import croupier, ended, started
from tests.harness.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

FILE = """
name = "survivor"

[defaults]
resources = {cpus = 0.1, mem = "32MB"}

[jobs.tick]
schedule = "@every 1s"
shell = "echo $CROUPIER_CRON_TIME.$CROUPIER_CRON_ATTEMPT >> OUT"
overlap = "queue"
queue = 100
missed = "all"
catch_up = 100
"""


class Files:
    """The files of one cron."""

    def __init__(self, directory: Path, text: str = FILE) -> None:
        self.out, self.cron = directory / "out", directory / "jobs.toml"
        self.state = directory / "state" / "jobs.db"
        self.cron.write_text(text.replace("OUT", str(self.out)))
        self.words = (str(self.cron), "--state", str(self.state))

    def lines(self) -> list[str]:
        return self.out.read_text().split() if self.out.exists() else []

    async def history(self) -> list[dict[str, Any]]:
        words = ("--state", str(self.state), "--json", "-n", "1000")
        result = await croupier("cron", "history", str(self.cron), *words)
        assert result.code == 0, result.err
        listed: list[dict[str, Any]] = json.loads(result.out)
        return listed

    async def grown_by(self, count: int) -> None:
        before = len(self.lines())
        await eventually(
            lambda: len(self.lines()) >= before + count, 60, f"{count} more runs: {self.lines()}"
        )


async def test_every_time_runs_once_through_kill_9_of_all_parts(tmp_path: Path) -> None:
    files = Files(tmp_path)
    async with real_cluster(tmp_path, "cpus:4;mem:4GB") as cluster:
        async with started("cron", *files.words, CROUPIER_MASTER=cluster.master) as cron:
            await files.grown_by(1)
            refused = await croupier("cron", *files.words, CROUPIER_MASTER=cluster.master)
            assert refused.code == 1
            assert f"in use by another copy (process {cron.pid})" in refused.err
            cron.kill()
        async with started("cron", *files.words, CROUPIER_MASTER=cluster.master) as cron:
            await files.grown_by(1)
            await restarted_master(cluster)
            await files.grown_by(1)
            cluster.kill("host0")
            await cluster.start_agent("host0", "cpus:4;mem:4GB")
            await files.grown_by(1)
            cluster.kill("master")
            cron.kill()
        await cluster.start_master()
        async with started("cron", *files.words, CROUPIER_MASTER=cluster.master) as cron:
            await files.grown_by(2)
            cron.send_signal(signal.SIGTERM)
            result = await ended(cron)
            assert result.code == 0, result.err
        await settled(files, cluster)
    # Each line is of another time.
    assert [
        n for n in Counter(line.split(".")[0] for line in files.lines()).values() if n > 1
    ] == []


async def restarted_master(cluster: Cluster) -> None:
    cluster.kill("master")
    await cluster.start_master()


async def settled(files: Files, cluster: Cluster) -> None:
    """Let cron follow its last runs to their ends, and compare what it says with what ran."""
    text = files.cron.read_text().replace("@every 1s", "0 0 29 2 *")
    files.cron.write_text(text)
    async with started("cron", *files.words, CROUPIER_MASTER=cluster.master):

        async def all_ended() -> bool:
            return {run["state"] for run in await files.history()} == {"finished"}

        await eventually(all_ended, 60, "all runs have finished")
    runs = await files.history()
    times = [run["time"] for run in runs]
    seconds = [int(time[17:19]) for time in times]
    assert all((b - a) % 60 == 1 for a, b in pairwise(seconds)), times
    assert sorted(files.lines()) == [run["task_id"].removeprefix("tick.") for run in runs]


async def test_replaced_runs_and_a_framework_that_was_removed(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "cpus:4;mem:4GB") as cluster:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with asyncio.TaskGroup() as both:
            both.create_task(replaced(cluster, tmp_path / "a"))
            both.create_task(removed(cluster, tmp_path / "b"))


async def replaced(cluster: Cluster, directory: Path) -> None:
    """A later run ends one that still runs, and never are there two."""
    text = FILE.replace('overlap = "queue"', 'overlap = "replace"').replace("survivor", "replacer")
    files = Files(directory, text.replace(">> OUT", ">> OUT; exec sleep 1000"))
    async with started("cron", *files.words, CROUPIER_MASTER=cluster.master) as cron:
        await files.grown_by(3)
        cron.kill()
    states = Counter(run["state"] for run in await files.history())
    assert states["replaced"] >= 2
    assert states["running"] + states["placing"] <= 1
    assert (await cluster.frameworks())["replacer"].tasks <= 1


async def removed(cluster: Cluster, directory: Path) -> None:
    """Cron begins a new framework when an operator has removed its own."""
    files = Files(directory)
    async with started("cron", *files.words, CROUPIER_MASTER=cluster.master):
        await files.grown_by(1)
        words = ("framework", "teardown", "survivor", "--yes", "--master", cluster.master)
        result = await croupier(*words)
        assert result.code == 0, result.err
        await files.grown_by(2)


async def test_a_schedule_that_never_fires_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    files = Files(tmp_path, FILE.replace("@every 1s", "0 0 30 2 *"))
    result = await croupier("cron", *files.words, CROUPIER_MASTER="127.0.0.1:1")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "jobs.tick.schedule: '0 0 30 2 *' never fires" in result.err
    assert not files.state.exists()


async def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    home, master = str(tmp_path / "state"), "127.0.0.1:1"
    names = [tmp_path / name / "jobs.toml" for name in ("a", "b")]
    for path in names:
        path.parent.mkdir()
        path.write_text(FILE.replace("OUT", os.devnull))
    first = started("cron", str(names[0]), XDG_STATE_HOME=home, CROUPIER_MASTER=master)
    async with first as process:
        # It prints its first tick once it has claimed the name.
        assert process.stderr is not None
        assert await asyncio.wait_for(process.stderr.readline(), 30)
    result = await croupier("cron", str(names[1]), XDG_STATE_HOME=home, CROUPIER_MASTER=master)
    assert result.code == 1
    assert f"the name survivor is that of {names[0]}" in result.err
