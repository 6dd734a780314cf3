"""Running a local cluster: from the flags to the exit code."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from croupier.ctl.local.children import Children
from croupier.ctl.local.cluster import Cluster, report
from croupier.ctl.local.follow import follow
from croupier.ctl.local.machine import port_to_use, this_machine
from croupier.ctl.local.plan import LocalSpec, Plan, make_plan
from croupier.ctl.signals import EndSignals
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.net.address import MASTER_PORT


@dataclass(frozen=True, slots=True)
class Place:
    """Ports (0: any free one) and a directory (None: a temporary one)."""

    master_port: int
    http_port: int
    work_dir: Path | None
    verbose: bool


def run_local(spec: LocalSpec, place: Place) -> int:
    """Run a cluster until a signal ends it, and return exit code 0.

    Raises:
        Unavailable: if a port is taken, or the cluster does not come up.
        InvalidRequest: if the directory cannot be made.
    """
    master_port = port_to_use("--master-port", place.master_port)
    http_port = port_to_use("--http-port", place.http_port)
    with _work_dir(place.work_dir) as work_dir:
        directory = work_dir.path
        plan = make_plan(spec, this_machine(directory), directory, master_port, http_port)
        return asyncio.run(live(plan, place, directory, work_dir.keep_logs))


def welcome(plan: Plan, directory: Path, passes: bool) -> str:
    """Return the message for a cluster that is ready."""
    count, each = len(plan.agents), Resources(plan.each[0].scalars)
    where = "" if plan.master_address.port == MASTER_PORT else f" --master {plan.master_address}"
    return f"""\
Croupier is ready: a master and {count} agent{"" if count == 1 else "s"}, each with {each}

  master   {plan.master_address}
  metrics  http://{plan.http_address}/metrics
  files    {directory}{" (removed at the end)" if passes else ""}

Try in another terminal:

  croupier run{where} -- echo hello
  croupier agents{where}
  croupier tasks{where}

Ctrl-C ends everything."""


async def live(
    plan: Plan, place: Place, directory: Path, keep_logs: Callable[[], None] = lambda: None
) -> int:
    """Run `plan` until a signal ends it; return the exit code.

    `keep_logs` is called if a daemon has failed.

    Raises:
        Unavailable: if the cluster does not come up.
    """
    signals = EndSignals()
    children = Children()
    cluster = Cluster(plan, directory, children)
    following = asyncio.create_task(follow(lambda: cluster.logs)) if place.verbose else None
    living = asyncio.create_task(_serve(cluster, plan, place, directory))
    ending = asyncio.create_task(signals.first())
    try:
        await asyncio.wait((living, ending), return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
        return 0
    finally:
        for task in (living, ending):
            task.cancel()
        await asyncio.gather(living, ending, return_exceptions=True)
        await cluster.take_down(signals.second())
        if cluster.has_failed:
            keep_logs()
        left = await children.end_all()
        if left:
            report(f"could not kill {', '.join(map(str, left))}")
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        signals.close()


async def _serve(cluster: Cluster, plan: Plan, place: Place, directory: Path) -> None:
    await cluster.bring_up()
    print(welcome(plan, directory, passes=place.work_dir is None), flush=True)
    await cluster.watch()


@dataclass(slots=True)
class WorkDir:
    """The directory of the cluster's files."""

    path: Path
    keeps_logs: bool = False

    def keep_logs(self) -> None:
        """Keep the logs of a temporary directory."""
        self.keeps_logs = True


@contextmanager
def _work_dir(wanted: Path | None) -> Iterator[WorkDir]:
    if wanted is None:
        made = WorkDir(Path(tempfile.mkdtemp(prefix="croupier-local-")))
        try:
            yield made
        finally:
            _clear(made)
        return
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"--work-dir {wanted}: {error.strerror}") from None
    yield WorkDir(wanted.resolve())


def _clear(made: WorkDir) -> None:
    """Remove a temporary directory, or everything in it but the logs."""
    if not made.keeps_logs:
        shutil.rmtree(made.path, ignore_errors=True)
        return
    for each in made.path.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        elif each.suffix != ".log":
            each.unlink(missing_ok=True)
    report(f"the logs are kept in {made.path}")
