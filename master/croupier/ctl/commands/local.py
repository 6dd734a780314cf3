"""`croupier local`: from the flags to the exit code."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from croupier.cli.signals import EndSignals
from croupier.cli.terminal import print_lines
from croupier.ctl.app import app
from croupier.ctl.local.children import Children
from croupier.ctl.local.cluster import Cluster, report
from croupier.ctl.local.plan import HOST, LOCAL_SPEC, LocalPlan, LocalSpec, MachineSize, make_plan
from croupier.ctl.local.security import LocalSecurity
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.limits import MIB
from croupier.model.resources import Resources
from croupier.net.address import MASTER_PORT, Address
from croupier.net.task_scope import end, racing
from croupier.process.durable_files import os_errors_as


@app.command
def local(*master_flags: str, spec: LocalSpec = LOCAL_SPEC) -> int:
    """Run a master and agents on this machine until Ctrl-C.

    A daemon that ends is restarted, on the same ports and files. Only you can use the cluster: your
    commands and frameworks find its credentials in ~/.config/croupier/credentials.

    Args:
        master_flags: Flags of croupier-master, after --, such as -- --offer-lease 30.
    """
    spec = replace(spec, master_flags=with_ports(master_flags))
    master_port = port_to_use("--master-port", spec.master_port)
    http_port = port_to_use("--http-port", spec.http_port)
    with _work_dir(spec.work_dir) as work_dir:
        directory = work_dir.path
        address = Address(HOST, master_port)
        security = LocalSecurity.make(directory, address) if spec.auth else None
        files = None if security is None else security.files
        plan = make_plan(spec, this_machine(directory), directory, master_port, http_port, files)
        try:
            return asyncio.run(live(plan, spec, work_dir, security))
        finally:
            if security is not None:
                security.withdraw()


def welcome(
    plan: LocalPlan, directory: Path, passes: bool, access: str = "", isolation: str = "none"
) -> str:
    """Return the message for a cluster that is ready.

    `passes`: its `directory` is removed at the end. `access` names its users, or is empty for all;
    `isolation` is that of tasks, in words.
    """
    count, each = len(plan.agents), Resources(plan.each[0].scalars)
    where = "" if plan.master_address.port == MASTER_PORT else f" --master {plan.master_address}"
    scheme = "https" if access else "http"
    mesos = re.search(r"--mesos-listen[ =](\S+)", " ".join(plan.master.argv))
    mesos_line = f"\n  mesos    {scheme}://{mesos[1]}/" if mesos else ""
    return f"""\
Croupier is ready: a master and {count} agent{"" if count == 1 else "s"}, each with {each}

  master   {plan.master_address}
  page     {scheme}://{plan.http_address}/ (sign in: croupier page{where})
  metrics  {scheme}://{plan.http_address}/metrics{mesos_line}
  files    {directory}{" (removed at the end)" if passes else ""}
  access   {access or "every user of this machine"}
  isolated {isolation}

Try in another terminal:

  croupier run{where} -- echo hello
  croupier agents{where}
  croupier tasks{where}

Ctrl-C ends everything."""


async def live(
    plan: LocalPlan, spec: LocalSpec, work_dir: WorkDir, security: LocalSecurity | None = None
) -> int:
    """Run `plan` until a signal; return the exit code. Raises Unavailable if it does not start."""
    signals = EndSignals()
    children = Children()
    cluster = Cluster(plan, work_dir.path, children, security, spec.wait_s)
    following = asyncio.create_task(follow(lambda: cluster.logs)) if spec.verbose else None
    serving = _serve(cluster, plan, spec, work_dir.path, security)
    try:
        async with racing(serving, signals.first()) as (living, _):
            if living.done():
                living.result()
            return 0
    finally:
        await cluster.take_down(signals.second())
        work_dir.keeps_logs = cluster.has_failed
        left = await children.end_all()
        if left:
            report(f"could not kill {', '.join(map(str, left))}")
        if following is not None:
            await end(following)
        signals.close()


async def _serve(
    cluster: Cluster,
    plan: LocalPlan,
    spec: LocalSpec,
    directory: Path,
    security: LocalSecurity | None,
) -> None:
    await cluster.bring_up()
    access = "" if security is None else _publish(security)
    ready = replace(plan, agents=plan.agents[: cluster.ready])
    print(welcome(ready, directory, spec.work_dir is None, access, cluster.isolation), flush=True)
    await cluster.watch()


def _publish(security: LocalSecurity) -> str:
    """Write the user's credentials file; return who can use the cluster, and by what."""
    path = security.publish()
    if path is not None:
        return f"only you, by the credentials in {path}"
    ca, token = security.files.ca, security.files.admin_token
    return f"set CROUPIER_TLS_CA={ca} CROUPIER_TOKEN_FILE={token} (your home cannot be written)"


@dataclass(slots=True)
class WorkDir:
    """The directory of the cluster's files, and whether the logs in it are kept."""

    path: Path
    keeps_logs: bool = False


@contextmanager
def _work_dir(wanted: Path | None) -> Iterator[WorkDir]:
    if wanted is None:
        made = WorkDir(Path(tempfile.mkdtemp(prefix="croupier-local-")))
        if os.geteuid() == 0:
            # Tasks with uids of their own reach their sandboxes in it. No other file in it can
            # be read by other users.
            made.path.chmod(0o711)
        try:
            yield made
        finally:
            _clear(made)
        return
    with os_errors_as(InvalidRequest, f"--work-dir {wanted}"):
        wanted.mkdir(parents=True, exist_ok=True)
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


def with_ports(master_flags: Iterable[str]) -> tuple[str, ...]:
    """Return the flags with a free port for 0 in addresses, so that a restart takes the same one.

    Raises Unavailable if there is none.
    """
    fixed = [""]
    for flag in master_flags:
        name, _, address = flag.rpartition("=") if flag.startswith("--") else (fixed[-1], "", flag)
        if name in ("--mesos-listen", "--token-listen") and address.endswith(":0"):
            flag = f"{flag.removesuffix('0')}{port_to_use(name, 0)}"
        fixed.append(flag)
    return tuple(fixed[1:])


def this_machine(work_dir: Path) -> MachineSize:
    """Return the resources to divide among agents."""
    return MachineSize(
        cpus=len(os.sched_getaffinity(0)),
        mem_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        disk_mib=shutil.disk_usage(work_dir).free // MIB,
    )


def port_to_use(flag: str, port: int) -> int:
    """Return `port`, or a free one for 0; raises InvalidRequest, or Unavailable with `flag`."""
    if not 0 <= port <= 65535:
        raise InvalidRequest(f"{flag}: {port} is not a port (0-65535)")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {HOST}:{port}: {error.strerror} (choose another with {flag})"
            ) from None
        return int(probe.getsockname()[1])


POLL_S = 0.1
CHUNK_BYTES = 1024 * 1024


async def follow(logs: Callable[[], Iterable[Path]]) -> None:
    """Copy new lines of all `logs` to stderr, until cancelled."""
    # How much of each file was read, and the beginning of its next line.
    read: dict[Path, tuple[int, bytes]] = {}
    while True:
        for path in logs():
            offset, rest = read.get(path, (0, b""))
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(offset)
                fresh = file.read(CHUNK_BYTES)
                *lines, rest = (rest + fresh).split(b"\n")
                read[path] = offset + len(fresh), rest
                for line in lines:
                    text = line.decode(errors="replace")
                    print_lines(f"[{path.stem}] {text}", file=sys.stderr)
        await asyncio.sleep(POLL_S)
