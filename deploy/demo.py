"""Two demonstrations on a cluster of real daemons on this machine.

The first is the example of the DRF paper: one agent of 9 cpus and 18 GB; framework A's tasks take
<1 cpu, 4 GB>, B's <3 cpus, 1 GB>. A starts first and takes all it can. As its tasks end and B's
start, both shares reach 2/3, with 3 and 2 tasks running. The second is a job: tasks on three agents
count the words of this repository's text files.

    python deploy/demo.py           exits with 0 if both results are right
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from croupier.net.transport import free_addresses, make_channel
from croupier.process.daemon import PARENT_VARIABLE
from croupier.v1 import operator_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "framework_sdk/examples"
ENDINGS = (".md", ".py", ".proto", ".txt")
TASK_SECONDS = "1.0"
# The shares must equal the paper's for this long, except between the end of one task and the start
# of the next.
STEADY_S = 3.0
DEADLINE_S = 60.0
WANTED = {"A": (3, 0.667), "B": (2, 0.667)}

console = Console(highlight=False)


class Processes:
    """The processes of the demo, ended in reverse order."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, *command: str) -> None:
        """Start a process; its output goes to a file."""
        with (self._work_dir / f"{name}.log").open("wb") as log:
            # A session of its own: Ctrl-C reaches only the demo, which ends all in order.
            process = subprocess.Popen(
                [sys.executable, "-P", *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            )
        self._running.append((name, process))

    def check(self) -> None:
        """Exit with the log of a process that has ended by itself."""
        for name, process in self._running:
            if process.poll() is not None:
                log = (self._work_dir / f"{name}.log").read_text(errors="replace")
                raise SystemExit(f"demo: {name} ended with {process.returncode}:\n{log}")

    def end(self, keep: int = 0) -> None:
        """End all but the first `keep`, last started first."""
        while len(self._running) > keep:
            _, process = self._running.pop()
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@asynccontextmanager
async def cluster(work_dir: Path) -> AsyncIterator[tuple[Processes, OperatorServiceStub, str]]:
    """Run a master on free ports; the caller adds agents and frameworks."""
    processes = Processes(work_dir)
    listen, http = free_addresses(2)
    channel = make_channel(listen)
    try:
        processes.start(
            "master", "-m", "croupier.master", "--listen", str(listen), "--http", str(http),
            "--store", f"sqlite:{work_dir / 'master.db'}", "--log-format", "json",
        )  # fmt: skip
        await asyncio.wait_for(channel.channel_ready(), 20)
        yield processes, OperatorServiceStub(channel), str(listen)
    finally:
        await channel.close()
        processes.end()


def start_agent(
    processes: Processes, work_dir: Path, master: str, name: str, has: str, *flags: str
) -> None:
    """Start an agent with the resources `has`."""
    processes.start(
        name, "-m", "croupier.agent", "--master", master, "--http", "127.0.0.1:0",
        "--work-dir", str(work_dir / name), "--resources", has, "--hostname", name,
        "--log-format", "json", *flags,
    )  # fmt: skip


async def paper_example(work_dir: Path) -> None:
    """Run the DRF paper's example."""
    console.rule("[bold]The DRF paper's example, live")
    console.print("One agent of 9 cpus and 18 GB. A: <1 cpu, 4 GB>, B: <3 cpus, 1 GB>.\n")
    async with cluster(work_dir) as (processes, operator, master):
        start_agent(
            processes, work_dir, master, "host", "cpus:9;mem:18GB;disk:10GB;ports:[31000-31999]"
        )
        for name, unit in (("A", "cpus:1;mem:4GB"), ("B", "cpus:3;mem:1GB")):
            processes.start(
                name, str(EXAMPLES / "drf_pair.py"), "--master", master, "--name", name,
                "--unit", unit, "--role", name, "--task-seconds", TASK_SECONDS,
            )  # fmt: skip
            await watch(processes, operator, {name} | ({"A"} if name == "B" else set()))
    console.print("A runs 3 tasks, B runs 2: both have a dominant share of 2/3.\n")


async def watch(processes: Processes, operator: OperatorServiceStub, names: set[str]) -> None:
    """Show the shares until these frameworks run; with both, until they equal the paper's."""
    deadline = time.monotonic() + DEADLINE_S
    steady_since: float | None = None
    shown: dict[str, tuple[int, float]] = {}
    with Live(console=console, refresh_per_second=8) as live:
        while time.monotonic() < deadline:
            processes.check()
            shares = await read_shares(operator)
            if console.is_terminal:
                live.update(as_table(shares))
            elif shares != shown and set(shares) >= names:
                line = ", ".join(f"{n}: {t} tasks, share {s:.3f}" for n, (t, s) in shares.items())
                console.print(f"  {line}")
            shown = shares
            if len(names) == 1:
                if all(shares.get(name, (0, 0.0))[0] > 0 for name in names):
                    return
            elif shares == WANTED:
                steady_since = steady_since or time.monotonic()
                if time.monotonic() - steady_since >= STEADY_S:
                    return
            elif sum(tasks for tasks, _ in shares.values()) >= 5:
                # The agent is full, but not as in the paper. Fewer tasks are a transition.
                steady_since = None
            await asyncio.sleep(0.02)
    raise SystemExit(f"demo: the shares are {shown}, not {WANTED}")


async def read_shares(operator: OperatorServiceStub) -> dict[str, tuple[int, float]]:
    """Return the running tasks and the dominant share of each framework."""
    listed = await operator.ListFrameworks(operator_pb2.ListFrameworksRequest(), timeout=5)
    return {
        view.framework.name: (view.tasks, round(view.share_ppm / 1e6, 3))
        for view in sorted(listed.frameworks, key=lambda view: view.framework.name)
    }


def as_table(shares: dict[str, tuple[int, float]]) -> Table:
    """Return the shares as a table."""
    table = Table("framework", "tasks", "dominant share", "")
    for name, (tasks, share) in shares.items():
        table.add_row(name, str(tasks), f"{share:.3f}", "█" * round(share * 40))
    return table


async def word_count(work_dir: Path) -> None:
    """Count the words of this repository's text files on three agents."""
    console.rule("[bold]A job: counting words")
    files = sorted(texts(ROOT))
    console.print(f"{len(files)} files, map tasks and a reduce task on three agents.\n")
    async with cluster(work_dir) as (processes, _, master):
        # The tasks read this repository and share a directory, so they run as its user.
        user = ("--task-user", pwd.getpwuid(os.geteuid()).pw_name)
        for name in ("host1", "host2", "host3"):
            start_agent(processes, work_dir, master, name, "cpus:2;mem:1GB;disk:1GB", *user)
        job = await asyncio.create_subprocess_exec(
            sys.executable, str(EXAMPLES / "word_count.py"), "--master", master,
            "--maps", "6", "--output", str(work_dir / "counts"), *map(str, files),
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = await asyncio.wait_for(job.wait(), DEADLINE_S)
        finally:
            if job.returncode is None:
                job.kill()
                await job.wait()
        processes.check()
    if code:
        raise SystemExit(f"demo: the word count ended with {code}")


def texts(root: Path) -> Iterator[Path]:
    """Yield the text files in a folder, without those in hidden ones."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and name.endswith(ENDINGS):
                yield Path(folder, name)


def main() -> int:
    """Run both demonstrations, and leave nothing behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    work_dir = Path(tempfile.mkdtemp(prefix="croupier-demo-"))
    work_dir.chmod(0o711)
    os.environ["PYTHONUNBUFFERED"] = "1"
    try:
        for name, part in (("drf", paper_example), ("words", word_count)):
            (work_dir / name).mkdir()
            # Tasks have uids of their own if this is root, and pass through to their sandboxes.
            (work_dir / name).chmod(0o711)
            asyncio.run(part(work_dir / name))
    except KeyboardInterrupt:
        console.print("\ndemo: interrupted; everything is ended")
        return 130
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    console.print(f"\nBoth results are right, after {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
