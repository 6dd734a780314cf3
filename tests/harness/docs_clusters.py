"""Clusters that pages of the documentation set up, and their shell blocks, run as a reader would.

A page names machines, directories and ports of its reader. Here each machine is a loopback address,
and each directory is below one of the test.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.harness.forked_start.popen import BIN
from tests.harness.shell_blocks import DAEMON, OWN_SHELL, Block, blocks

_MARK: Final = "=== block "
# Another shell finds copies of certificates and tokens in its directory. Daemons have a session of
# their own and outlive the page's shell; one is ready when its log says so.
_PRELUDE: Final = """
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT TERM
curl() { command curl --fail-with-body --max-time 20 "$@"; }
elsewhere() {
    mkdir -p "elsewhere-$1"
    for file in certs certs/* *.token; do
        if [ -e "$file" ]; then cp -r "$file" "elsewhere-$1"; fi
    done
    cd "elsewhere-$1"
}
latest_task() {
    croupier tasks --state FINISHED --json | python3 -c '
import json, sys
print(max(json.load(sys.stdin), key=lambda task: task["submitted_ms"])["task_id"])'
}
daemon() {
    setsid bash -eu "$1" </dev/null >"$1.log" 2>&1 &
    echo $! >>"$DAEMONS/pids"
    for _ in $(seq 300); do
        if grep -qE '"(master_started|registered)"|: running [0-9]+ job' "$1.log"; then return; fi
        if ! kill -0 $! 2>/dev/null; then break; fi
        sleep 0.1
    done
    cat "$1.log" >&2
    return 1
}
"""


def run_page(
    page: str,
    folder: Path,
    env: Mapping[str, str],
    timeout_s: float,
    rewritten: Callable[[Block], str] = lambda block: block.text,
) -> str:
    """Run the shell blocks of a page's text in `folder`, in one shell; return what they print.

    Args:
        page: its text.
        folder: where it runs.
        env: of the shell. DAEMONS names the directory for logs and pids of daemons, if it has any.
        timeout_s: bound of the whole page.
        rewritten: returns the text that is run for a block.

    Raises:
        AssertionError: if a command fails, prints something else than the page says, or takes
            longer than `timeout_s` with all that come before it.
    """
    found = list(blocks(page))
    script = _PRELUDE + "".join(_part(block, rewritten(block)) for block in found)
    output = run_script(script, folder, env, timeout_s)
    printed = dict(_printed(output))
    for block, answer in pairwise(found):
        if block.runs and answer.language == "output":
            assert is_like(printed[block.line], answer.text), (
                f"line {block.line} printed\n{printed[block.line]}and not\n{answer.text}"
            )
    return output


def run_script(script: str, folder: Path, env: Mapping[str, str], timeout_s: float) -> str:
    """Run a script of bash, and return what it prints.

    Raises:
        AssertionError: if it fails, or takes longer than `timeout_s`.
    """
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder, env=dict(env), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()  # its trap ends what it has started
        out, err = process.communicate(timeout=30)
        raise AssertionError(f"longer than {timeout_s:g} s:\n{out}\n{err}") from None
    assert process.returncode == 0, f"exit code {process.returncode}:\n{out}\n{err}"
    return out


def is_like(printed: str, expected: str) -> bool:
    """Return whether a text has the lines of `expected`, where `...` stands for any lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), printed) is not None


def _part(block: Block, text: str) -> str:
    """Return the part of a page's script that is a block."""
    if block.saved_as:
        return f"cat >{block.saved_as} <<'END OF FILE'\n{text}END OF FILE\n"
    if not block.runs:
        return ""
    head = f"echo '{_MARK}{block.line}'; echo '{_MARK}{block.line}' >&2\n"
    if block.mark == OWN_SHELL:
        return f"{head}(\nelsewhere {block.line}\n{text})\n"
    if block.mark == DAEMON:
        name = f'"$DAEMONS/{block.line}"'
        file = f"mkdir -p \"$DAEMONS\"\ncat >{name} <<'END OF DAEMON'\n{text}END OF DAEMON\n"
        return f"{head}{file}daemon {name}\n"
    return head + text


def _printed(output: str) -> Iterator[tuple[int, str]]:
    """Yield what each block printed, by the line of its fence."""
    for part in output.split(_MARK)[1:]:
        number, _, text = part.partition("\n")
        yield int(number), text


REPO: Final = Path(__file__).resolve().parents[2]
PORTS: Final = (5050, 5051, 5080, 5081)
END_S: Final = 20.0
PAGE_S: Final = 150.0
# Variables of the tests that would hide what a page sets.
_NOT_INHERITED: Final = (
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CROUPIER_MASTER"),
    *("CROUPIER_TASK_USER", "CROUPIER_TASK_USERS"),
)


@dataclass
class DocsCluster:
    """A directory in which pages run, the addresses of their machines, and their daemons.

    Attributes:
        network: the first three parts of the addresses, such as `127.3.1`.
        stands_for: what replaces a name of the page, such as that of a framework.
    """

    folder: Path
    commands: Path
    network: str
    stands_for: dict[str, str] = field(default_factory=dict)
    _daemons: int = 0

    def run(self, page: str, **variables: str) -> str:
        """Run the shell blocks of a page; its daemons go on until `close`."""
        text = (REPO / page).read_text()
        return run_page(text, self.folder, self.env(**variables), PAGE_S, self._rewritten)

    def env(self, **more: str) -> Mapping[str, str]:
        """Return the environment of its shells."""
        kept = {name: text for name, text in os.environ.items() if name not in _NOT_INHERITED}
        return kept | {
            "PATH": os.pathsep.join((str(self.commands), str(BIN), os.environ["PATH"])),
            "HOME": str(self.folder / "home"),
            "DAEMONS": str(self.folder / "daemons"),
            **more,
        }

    def close(self) -> None:
        """End the daemons, and their tasks."""
        pids = self.folder / "daemons/pids"
        sessions = [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
        end_sessions(*sessions)
        pids.unlink(missing_ok=True)

    def _rewritten(self, block: Block) -> str:
        """Return the text of a block for this machine."""
        text = block.text
        for name, value in self.stands_for.items():
            text = re.sub(rf"\b(?:{name})\b", value, text)
        folders = {
            "/etc/croupier": "certs",
            "/var/lib": "var",
            "/run/": "run/",
            "/backup/": "",
            "/tmp/primes": "primes",
            "/tmp/sevens": "sevens",
        }
        for found, stead in folders.items():
            text = text.replace(found, f"{self.folder}/{stead}")
        text = text.replace("10.0.0.", f"{self.network}.").replace("127.0.0.1", f"{self.network}.1")
        if block.mark != DAEMON:
            return text
        self._daemons += 1
        # What its flags say wins.
        here = f"{self.network}.{self._daemons}"
        settings = {"HTTP": f"{here}:{5080 if 'croupier-master' in text else 5081}"}
        settings |= {"HOSTNAME": f"host{self._daemons + 5}"}
        settings |= {"LISTEN": f"{here}:5050", "ON_STOP": "end", "HEARTBEAT": "0.5"}
        own = self.folder / f"agent-{self._daemons}"
        text = re.sub(rf"{self.folder}/var/croupier/agent\b", str(own), text)
        settings |= {
            "WORK_DIR": str(own),
            "RESOURCES": "cpus:8;mem:16GB;gpus:2;ports:[31000-31999]",
        }
        lines = [f"export CROUPIER_{name}='{value}'\n" for name, value in settings.items()]
        return "".join(lines) + text


@contextmanager
def docs_cluster(folder: Path, commands: Path) -> Iterator[DocsCluster]:
    """Make the directory of a cluster that pages set up; end its daemons at the end."""
    for name in ("home", "var/croupier", "run", "certs"):
        (folder / name).mkdir(parents=True)
    cluster = DocsCluster(folder, commands, _free_network())
    try:
        yield cluster
    finally:
        cluster.close()


def end_sessions(*sessions: int) -> None:
    """Send SIGTERM to all processes of sessions, and wait until they have ended.

    Raises:
        AssertionError: if they do not; they are killed.
    """
    for session in sessions:
        _signal(session, signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while any(_signal(session, 0) for session in sessions):
        if time.monotonic() > deadline:
            for session in sessions:
                _signal(session, signal.SIGKILL)
            raise AssertionError("processes do not end")
        time.sleep(0.05)


def _free_network() -> str:
    """Return a part of the loopback network in which no port of the pages is in use."""
    for number in range(os.getpid(), os.getpid() + 1_000):
        network = f"127.{number // 200 % 200 + 20}.{number % 200 + 1}"
        with suppress(OSError):
            for port in PORTS:
                with socket.socket() as probe:
                    probe.bind((f"{network}.1", port))
            return network
    raise AssertionError("no free network")


def _signal(session: int, number: int) -> bool:
    """Signal the processes of a session; return whether there are any."""
    try:
        os.killpg(session, number)
    except ProcessLookupError:
        return False
    return True
