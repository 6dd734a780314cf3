"""A secret of a task is in no file and in no output of a real cluster; only the task has it."""

from __future__ import annotations

import asyncio
import signal
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from croupier.agent.secret_files import SecretFiles, is_in_memory
from tests.harness.cluster import Cluster, fetch
from tests.harness.command import croupier
from tests.harness.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

AGENT = "cpus:4;mem:4GB;disk:1GB"
CANARY = "a-canary-of-29-characters-4711"
SHOWN = sha256(CANARY.encode()).hexdigest()
FORMS = (CANARY.encode(), b64encode(CANARY.encode())[:-4], CANARY.encode().hex().encode())


def leaks(cluster: Cluster) -> list[str]:
    """Return the files under the work dir, and the command lines, that hold the secret."""
    paths = [path for path in cluster.work_dir.rglob("*") if path.is_file()]
    paths += Path("/proc").glob("[0-9]*/cmdline")
    found = []
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if path.name != "password" and any(form in content for form in FORMS):
            found.append(str(path))
    return found


@pytest.mark.skipif(not is_in_memory(Path("/dev/shm")), reason="there is no tmpfs")
async def test_only_the_task_gets_a_secret(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    secret = tmp_path / "password"
    secret.write_text(CANARY)
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done;"
    run = ("run", "--master", cluster.master, "--cpus", "0.1", "--mem", "16MB", "--shell")
    given = (*run, "--secret", f"PASSWORD=@{secret}")
    debug = ("--log-level", "debug")
    keys = tmp_path / "keys" / "secrets.key"
    keys.parent.mkdir()
    log = tmp_path / "events.log"
    runs = SecretFiles((tmp_path / "host0").resolve())

    try:
        flags = ("--secrets-key-file", str(keys), "--event-log", str(log), *debug)
        await cluster.start_master(*flags)
        await cluster.start_agent("host0", AGENT, *debug, on_stop="leave")
        hashed = f'{wait} printf %s "$PASSWORD" | sha256sum; exit 0'
        read = f'{wait} sha256sum < "$CROUPIER_SECRETS_DIR/PASSWORD"; echo "${{PASSWORD-none}}"'
        jobs = [
            asyncio.create_task(croupier(*given, "--name", "a", "--", hashed)),
            asyncio.create_task(croupier(*given, "--name", "b", "--secret-files", "--", read)),
        ]

        async def both_run() -> bool:
            cluster.check_running()
            return sum((await cluster.running()).values()) == 2 and len(runs.left(())) == 1

        await eventually(both_run, 60, "both tasks run")
        cluster.kill("host0", signal.SIGKILL)
        listed = croupier("tasks", "--json", "--commands", "--master", cluster.master)
        shown, _ = await asyncio.gather(
            listed, cluster.start_agent("host0", AGENT, *debug, on_stop="leave")
        )
        assert '"PASSWORD"' in shown.out
        assert leaks(cluster) == []
        go.touch()
        ended = await asyncio.gather(*jobs)
        assert [each.code for each in ended] == [0, 0], ended
        assert ended[0].out.split()[0] == SHOWN
        assert ended[1].out.split() == [SHOWN, "-", "none"]
        await eventually(lambda: not runs.left(()), 30, "the secret files are removed")
        metrics = fetch(f"http://{cluster.http}/metrics")
        cluster.kill("master", signal.SIGKILL)
        replayed = await croupier("replay", str(log), "--verify")
        assert replayed.code == 0, replayed.err
        printed = (each.out + each.err for each in (shown, *ended, replayed))
        assert CANARY not in "".join((*printed, metrics))
        assert leaks(cluster) == []
    finally:
        await cluster.stop()
        if runs.root.exists():
            runs.root.rmdir()
