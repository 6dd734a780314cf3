"""Run a cluster of the old build, and keep its files.

    python -m tests.upgrade.make

Replaces all files of `cf2f4e21/` but the wheel.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.harness.etcd import running_etcd
from tests.harness.eventually import eventually
from tests.upgrade.build import OLD, Build, extract_old_build
from tests.upgrade.cluster import AGENT, MASTER, WAIT_S, Upgrade, old_cluster

SETTINGS = (
    ("weights", "set", "ads", "2.5", "--resource", "gpus=3", "--force"),
    ("quota", "set", "ads", "--guarantee", "cpus:2", "--limit", "cpus:40;mem:8GB", "--force"),
    ("quota", "set", "ads/test", "--preemption", "off"),
    ("agent", "deactivate", "host1"),
    ("drain", "host2", "--grace", "30s"),
    ("agent", "gone", "host3", "--yes"),
)
COPY = "copy.croupier"


async def make(folder: Path) -> None:
    old = extract_old_build(folder)
    work_dir = folder / "cluster"
    work_dir.mkdir()
    log = work_dir / "events.log"
    async with old_cluster(work_dir, old, "--event-log", str(log)) as upgrade:
        for name in ("host1", "host2", "host3"):
            await upgrade.start_agent(name, "cpus:2;mem:1GB;disk:1GB", on_stop="leave")
        for words in SETTINGS:
            run(old, "croupier.ctl", *words, "--master", upgrade.master)
        await kill_one(upgrade, old)
        upgrade.kill(MASTER, signal.SIGTERM)
        upgrade.kill(AGENT, signal.SIGKILL)
        run(old, "tests.upgrade.more", str(work_dir / "master.db"), str(work_dir / AGENT))
        (OLD / COPY).unlink(missing_ok=True)
        store = f"sqlite:{work_dir / 'master.db'}"
        run(old, "croupier.master", "backup", "--store", store, "--output", str(OLD / COPY))
        shutil.copy2(work_dir / "master.db", OLD / "master.db")
        shutil.copy2(work_dir / AGENT / "checkpoint.log", OLD / "checkpoint.log")
        shutil.copy2(log, OLD / "events.log")
    keep(old, "registry.json", "sqlite", str(OLD / "master.db"))
    keep(old, "checkpoint.json", "checkpoint", str(OLD))
    with running_etcd(folder / "etcd") as etcd:
        keep(old, "etcd.json", "etcd", str(etcd.addresses[0]), str(OLD / "master.db"))


async def kill_one(upgrade: Upgrade, old: Build) -> None:
    """Kill a task as an operator; the framework does not acknowledge its end."""
    pid = upgrade.ran.starts["t-19"][0]
    run(old, "croupier.ctl", "kill", "t-19", "--master", upgrade.master)
    await eventually(lambda: not Path(f"/proc/{pid}").exists(), WAIT_S, "the task is killed")


def run(old: Build, module: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env=old.environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def keep(old: Build, name: str, *words: str) -> None:
    (OLD / name).write_text(run(old, "tests.upgrade.dump", *words))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="upgrade-") as scratch:
        asyncio.run(make(Path(scratch)))
