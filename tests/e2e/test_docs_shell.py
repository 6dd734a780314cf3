"""The shell blocks of the documentation run as they are printed, on a few clusters.

In the PATH of their shells, `croupier` commands are forks of a loaded interpreter. Each is a small
program. It hands its words, directory, environment and standard streams to the tests' process,
passes on signals, and ends as the fork ends.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.harness.doc_pages import (
    LOCAL,
    LOCAL_PAGES,
    MPI_PAGE,
    OTHER_PAGES,
    PLAIN_PAGES,
    SECURED_PAGES,
    STOPPED_PAGE,
)
from tests.harness.docs_clusters import DocsCluster, docs_cluster, end_sessions
from tests.harness.forked_start.popen import SCRIPTS
from tests.harness.mpi import require_mpi
from tests.harness.processes import working_in
from tests.harness.real_local import Local, running_local

PROGRAM: Final = """#!{python} -ISB
import json, os, signal, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(link, [len(request).to_bytes(8, "big")], [0, 1, 2])
link.sendall(request)
answers = link.makefile()
pid = int(answers.readline() or "0")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    if pid and signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: os.kill(pid, number))
code = int(answers.readline() or "255")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def forked_commands() -> Iterator[Path]:
    """Serve the commands; yield their directory."""
    with tempfile.TemporaryDirectory(prefix="forked-") as name:
        folder, address = Path(name), f"{name}/socket"
        for script in map(Path, SCRIPTS):
            (folder / script.name).write_text(
                PROGRAM.format(python=sys.executable, address=address)
            )
            (folder / script.name).chmod(0o755)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(64)
        threading.Thread(target=_accept, args=[listener], daemon=True).start()
        try:
            yield folder
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def _accept(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=[connection], daemon=True).start()


def _serve(connection: socket.socket) -> None:
    """Run one command, and answer with its pid and its exit code."""
    with connection:
        head, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        size = int.from_bytes(head, "big")
        words, cwd, env = json.loads(connection.recv(size, socket.MSG_WAITALL))
        program = next(script for script in SCRIPTS if Path(script).name == Path(words[0]).name)
        stdin, stdout, stderr = descriptors
        try:
            process = subprocess.Popen(
                [program, *words[1:]], cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        with suppress(OSError):
            connection.sendall(f"{process.pid}\n".encode())
        code = process.wait()
        with suppress(OSError):
            connection.sendall(f"{code}\n".encode())


pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

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
        # A controller that was told to stop still writes its state.
        deadline = time.monotonic() + WAIT_S
        while left := working_in(Path(name)):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("docs"), *LOCAL) as local:
        yield local


@pytest.mark.parametrize("page", LOCAL_PAGES)
def test_the_shell_blocks_of_a_page_run(
    page: str, local: Local, commands: Path, folder: Path
) -> None:
    if page == MPI_PAGE:
        require_mpi()
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
