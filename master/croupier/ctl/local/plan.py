"""The daemons of a local cluster, and the resources of each agent. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.scalar import MILLI, check_unit, parse_scalar
from croupier.net.address import MASTER_HTTP_PORT, MASTER_PORT, Address
from croupier.process.cli import read_by

HOST: Final = "127.0.0.1"
MAX_AGENTS: Final = 500
# From Mesos' first port to the last one below Linux' ephemeral ports.
PORTS: Final = (31000, 32767)
MAX_PORTS_EACH: Final = 500


@dataclass(frozen=True, slots=True)
class MachineSize:
    """The resources of this machine; mem and disk in whole MiB."""

    cpus: int
    mem_mib: int
    disk_mib: int


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class LocalSpec:
    """The flags of `croupier local`.

    Attributes:
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
        wait_s: Give up if not all agents are ready after this time, such as 5m. Default: wait as
            long as agents keep registering, and continue with those that have.
    """

    agents: int = 3
    cpus: str | None = None
    mem: str | None = None
    disk: str | None = None
    master_port: int = MASTER_PORT
    http_port: int = MASTER_HTTP_PORT
    work_dir: Path | None = None
    role_weights: str = ""
    policy: str = ""
    verbose: bool = False
    auth: bool = True
    isolation: str = ""
    task_user: str = ""
    wait_s: Annotated[float | None, read_by(parse_duration, name="--wait")] = None
    master_flags: Annotated[tuple[str, ...], Parameter(parse=False)] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.agents <= MAX_AGENTS:
            raise InvalidRequest(f"--agents must be between 1 and {MAX_AGENTS}")
        for name in ("cpus", "mem", "disk"):
            if self.amount(name, 1) == 0 and name != "disk":
                raise InvalidRequest(f"--{name} must be more than 0")
        if self.wait_s is not None and not self.wait_s > 0:
            raise InvalidRequest("--wait must be more than 0")

    def amount(self, name: str, default: int) -> int:
        """Return an amount of each agent, in thousandths; raises InvalidRequest if malformed."""
        text = getattr(self, name)
        return default if text is None else parse_scalar(name, check_unit(name, text))


LOCAL_SPEC: Final = LocalSpec()


@dataclass(frozen=True, slots=True)
class SecurityFiles:
    """Files of the cluster's identity: the master's certificate with its authority, and tokens."""

    ca: Path
    cert: Path
    key: Path
    admin_token: Path
    join_token: Path


@dataclass(frozen=True, slots=True)
class Daemon:
    """One process to start."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """All daemons. The agents' names are their hostnames; `each` are their resources."""

    master_address: Address
    http_address: Address
    master: Daemon
    agents: tuple[Daemon, ...]
    each: tuple[Resources, ...]


def make_plan(
    spec: LocalSpec,
    machine: MachineSize,
    work_dir: Path,
    master_port: int,
    http_port: int,
    files: SecurityFiles | None = None,
) -> LocalPlan:
    """Plan the daemons; the ports are not 0. Without `files`, authentication is off."""
    master_address, http_address = Address(HOST, master_port), Address(HOST, http_port)
    each = tuple(_resources(spec, machine, index) for index in range(spec.agents))
    return LocalPlan(
        master_address,
        http_address,
        _master(master_address, http_address, work_dir, spec, files),
        tuple(
            _agent(f"agent-{number}", master_address, work_dir, resources, spec, files)
            for number, resources in enumerate(each, start=1)
        ),
        each,
    )


def _resources(spec: LocalSpec, machine: MachineSize, index: int) -> Resources:
    """Return the resources of one agent. No two agents have a port in common."""
    cpus = spec.amount("cpus", max(1, machine.cpus // spec.agents) * MILLI)
    mem = spec.amount("mem", max(1, machine.mem_mib // spec.agents) * MILLI)
    disk = spec.amount("disk", machine.disk_mib // spec.agents * MILLI)
    first, last = PORTS
    width = min(MAX_PORTS_EACH, (last - first + 1) // spec.agents)
    begin = first + index * width
    return Resources(
        {"cpus": cpus, "mem": mem, "disk": disk}, {"ports": ((begin, begin + width - 1),)}
    )


def _master(
    listen: Address, http: Address, work_dir: Path, spec: LocalSpec, files: SecurityFiles | None
) -> Daemon:
    argv = [*_PYTHON, "croupier.master", "--listen", str(listen), "--http", str(http)]
    argv += ["--store", f"sqlite:{work_dir / 'master.sqlite'}", *_LOGS]
    if not any(flag.startswith("--secrets-key-") for flag in spec.master_flags):
        argv += ["--secrets-key-file", str(work_dir / "secrets.key")]
    argv += ["--weights", spec.role_weights] if spec.role_weights else []
    argv += ["--policy", spec.policy] if spec.policy else []
    if files is not None:
        argv += ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
        argv += ["--admin-token-file", str(files.admin_token)]
    return Daemon("master", (*argv, *spec.master_flags))


def _agent(
    name: str,
    master: Address,
    work_dir: Path,
    resources: Resources,
    spec: LocalSpec,
    files: SecurityFiles | None,
) -> Daemon:
    argv = [*_PYTHON, "croupier.agent", "--master", str(master), "--hostname", name]
    argv += ["--http", str(Address(HOST, 0)), "--work-dir", str(work_dir / name)]
    argv += ["--resources", str(resources), "--on-stop", "end"]
    if files is not None:
        argv += ["--tls-ca", str(files.ca), "--join-token-file", str(files.join_token)]
    argv += [*_LOGS, *(["--isolation", spec.isolation] if spec.isolation else [])]
    argv += ["--task-user", spec.task_user] if spec.task_user else []
    return Daemon(name, tuple(argv))


# -P: no module is taken from the directory in which the command runs.
_PYTHON = (sys.executable, "-P", "-m")
_LOGS = ("--log-format", "json", "--log-level", "info")
