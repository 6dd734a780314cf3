"""`croupier local`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from croupier.ctl.app import app
from croupier.ctl.local.plan import LocalSpec, parse_amount
from croupier.ctl.local.running import run_local
from croupier.model.durations import parse_duration
from croupier.net.address import MASTER_HTTP_PORT, MASTER_PORT
from croupier.process.cli import read_by

LocalWaitFlag = Annotated[float | None, read_by(parse_duration, name="--wait")]


@app.command
def local(
    *master_flags: str,
    agents: int = 3,
    cpus: str | None = None,
    mem: str | None = None,
    disk: str | None = None,
    master_port: int = MASTER_PORT,
    http_port: int = MASTER_HTTP_PORT,
    work_dir: Path | None = None,
    role_weights: str = "",
    policy: str = "",
    verbose: bool = False,
    auth: bool = True,
    isolation: str = "",
    task_user: str = "",
    wait: LocalWaitFlag = None,
) -> int:
    """Run a master and agents on this machine until Ctrl-C.

    A daemon that ends is restarted, on the same ports and files. Only you can use the cluster: your
    commands and frameworks find its credentials in ~/.config/croupier/credentials.

    Args:
        master_flags: Flags of croupier-master, after --, such as -- --offer-lease 30.
        agents: The number of agents.
        cpus: CPUs of each agent. Default: an equal part of this machine's, at least 1.
        mem: Memory of each agent, such as 4GB. Default: an equal part of this machine's.
        disk: Disk of each agent, such as 10GB. Default: an equal part of the free space.
        master_port: The master's port on 127.0.0.1; 0 for any free port.
        http_port: The master's port for metrics and health; 0 for any free port.
        work_dir: Directory for state, logs and output. Default: a temporary directory, which is
            removed at the end; its logs are kept if a daemon failed.
        role_weights: Weights of roles, such as ads=2,web=1.
        policy: Allocation policy: drf, yarn-drf, fifo, asset, single-resource, slots or random.
            Default: drf.
        verbose: Print the log lines of all daemons.
        auth: --no-auth turns TLS and authentication off. Then every user of this machine can run
            programs as you.
        isolation: Isolation of tasks, as for croupier-agent: auto, none, or some of process,
            cgroup, namespaces and container. Default: auto, which uses what this machine supports.
        task_user: User of tasks that name none, as for croupier-agent: own or an account. Default:
            own if you are root, else you. With own, each task has a uid of its own, which has
            access to its sandbox and to what all users may read or execute.
        wait: Give up if not all agents are ready after this time, such as 5m. Default: wait as long
            as agents keep registering, and continue with those that have.
    """
    for_master = (*(("--policy", policy) if policy else ()), *master_flags)
    for_agents = (
        *(("--isolation", isolation) if isolation else ()),
        *(("--task-user", task_user) if task_user else ()),
    )
    amounts = parse_amount("cpus", cpus), parse_amount("mem", mem), parse_amount("disk", disk)
    flags = (*amounts, role_weights, for_master, for_agents, master_port, http_port, work_dir)
    return run_local(LocalSpec(agents, *flags, verbose, is_open=not auth, wait_s=wait))
