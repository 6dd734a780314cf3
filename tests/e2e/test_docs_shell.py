"""The shell blocks of the documentation run as they are printed, on a few clusters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.harness.doc_pages import (
    LOCAL,
    LOCAL_PAGES,
    OTHER_PAGES,
    PLAIN_PAGES,
    SECURED_PAGES,
    STOPPED_PAGE,
)
from tests.harness.docs_clusters import DocsCluster, docs_cluster, end_sessions
from tests.harness.forked_start.commands import forked_commands
from tests.harness.real_local import Local, running_local

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

WAIT_S: Final = 30.0


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    with forked_commands() as folder:
        yield folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that tasks of other users can enter."""
    with tempfile.TemporaryDirectory(prefix="docs-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("docs"), *LOCAL) as local:
        yield local


@pytest.mark.parametrize("page", LOCAL_PAGES)
def test_the_shell_blocks_of_a_page_run(
    page: str, local: Local, commands: Path, folder: Path
) -> None:
    variables = {
        "CROUPIER_MASTER": local.master,
        "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"],
        "XDG_STATE_HOME": str(folder / "state"),
    }
    with docs_cluster(folder, commands) as cluster:
        run(cluster, page, **variables)


def test_pages_run_on_the_cluster_of_the_security_page(commands: Path, folder: Path) -> None:
    with docs_cluster(folder, commands) as cluster:
        first, *others = SECURED_PAGES
        run(cluster, first)
        master = f"{cluster.network}.1:5050"
        cluster.stands_for |= {"node-17|HOST": "host7", "FRAMEWORK": "train"}
        cluster.stands_for |= {"(sh|seq)-3f9a": '"$(latest_task)"'}
        with framework("train", cluster, master):
            for page in others:
                run(cluster, page, CROUPIER_MASTER=master)
        cluster.close()
        cluster.stands_for |= {"master/(master|new).db": r"\1.db"}
        run(cluster, STOPPED_PAGE)


def test_pages_run_on_a_cluster_without_certificates(commands: Path, folder: Path) -> None:
    with docs_cluster(folder, commands) as cluster:
        first, *others = PLAIN_PAGES
        run(cluster, first)
        master = f"{cluster.network}.1:5050"
        with framework("train", cluster, master) as framework_id:
            (agent_id,) = ids(cluster, master, "agent_id", "agents")
            cluster.stands_for |= {"FRAMEWORK": framework_id, "AGENT": agent_id}
            for page in others:
                run(cluster, page, CROUPIER_MASTER=master)


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_the_shell_blocks_of_a_page_run_alone(page: str, commands: Path, folder: Path) -> None:
    with docs_cluster(folder, commands) as cluster:
        shutil.rmtree(folder / "certs")
        run(cluster, page)


def run(cluster: DocsCluster, page: str, **variables: str) -> None:
    begun = time.monotonic()
    print(cluster.run(page, **variables))
    print(f"{page}: {time.monotonic() - begun:.1f} s")


@contextmanager
def framework(name: str, cluster: DocsCluster, master: str) -> Iterator[str]:
    """Run a framework with a task on the cluster, again and again; yield its first id."""
    process = subprocess.Popen(
        ["bash", "-c", f"while true; do croupier run --name {name} -- sleep 600; done"],
        env=cluster.env(CROUPIER_MASTER=master),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + WAIT_S
        while not (found := ids(cluster, master, "framework_id", "tasks", "--state", "RUNNING")):
            assert time.monotonic() < deadline
        yield found[0]
    finally:
        threading.Thread(target=process.wait, daemon=True).start()  # a zombie counts as running
        end_sessions(process.pid)


def ids(cluster: DocsCluster, master: str, key: str, *words: str) -> list[str]:
    """Return the values of a key in a list of the cluster."""
    done = subprocess.run(
        [cluster.commands / "croupier", *words, "--json"], check=True, capture_output=True,
        text=True, env=cluster.env(CROUPIER_MASTER=master), timeout=WAIT_S,
    )  # fmt: skip
    return [each[key] for each in json.loads(done.stdout)]
