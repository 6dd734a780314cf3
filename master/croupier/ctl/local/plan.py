"""The daemons of a local cluster, and the resources of each agent. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.scalar import MILLI, check_unit, parse_scalar
from croupier.net.address import MASTER_HTTP_PORT, MASTER_PORT, Address

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


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """The flags of `croupier local`. Amounts are thousandths per agent; None is an equal part.

    Attributes:
        master_port: 0 for any free one, as for `http_port`.
        work_dir: None for a temporary one.
        is_open: without TLS and authentication.
        wait_s: the longest time until all agents are ready; None: as long as agents register.
    """

    agents: int = 3
    cpus: int | None = None
    mem: int | None = None
    disk: int | None = None
    weights: str = ""
    master_flags: tuple[str, ...] = ()
    agent_flags: tuple[str, ...] = ()
    master_port: int = MASTER_PORT
    http_port: int = MASTER_HTTP_PORT
    work_dir: Path | None = None
    verbose: bool = False
    is_open: bool = False
    wait_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.agents <= MAX_AGENTS:
            raise InvalidRequest(f"--agents must be between 1 and {MAX_AGENTS}")
        for name, milli in (("cpus", self.cpus), ("mem", self.mem)):
            if milli == 0:
                raise InvalidRequest(f"--{name} must be more than 0")
        if self.wait_s is not None and not self.wait_s > 0:
            raise InvalidRequest("--wait must be more than 0")


def parse_amount(name: str, text: str | None) -> int | None:
    """Read an amount of a resource, in thousandths; None is None.

    Raises:
        InvalidRequest: if it is malformed.
    """
    return None if text is None else parse_scalar(name, check_unit(name, text))


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
    cpus = max(1, machine.cpus // spec.agents) * MILLI if spec.cpus is None else spec.cpus
    mem = max(1, machine.mem_mib // spec.agents) * MILLI if spec.mem is None else spec.mem
    disk = machine.disk_mib // spec.agents * MILLI if spec.disk is None else spec.disk
    first, last = PORTS
    width = min(MAX_PORTS_EACH, (last - first + 1) // spec.agents)
    begin = first + index * width
    return Resources(
        {"cpus": cpus, "mem": mem, "disk": disk}, {"ports": ((begin, begin + width - 1),)}
    )


def _master(
    listen: Address, http: Address, work_dir: Path, spec: LocalSpec, files: SecurityFiles | None
) -> Daemon:
    argv = [sys.executable, "-m", "croupier.master", "--listen", str(listen), "--http", str(http)]
    argv += ["--store", f"sqlite:{work_dir / 'master.sqlite'}", *_LOGS]
    if not any(flag.startswith("--secrets-key-") for flag in spec.master_flags):
        argv += ["--secrets-key-file", str(work_dir / "secrets.key")]
    argv += ["--weights", spec.weights] if spec.weights else []
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
    argv = [sys.executable, "-m", "croupier.agent", "--master", str(master), "--hostname", name]
    argv += ["--http", str(Address(HOST, 0)), "--work-dir", str(work_dir / name)]
    argv += ["--resources", str(resources), "--on-stop", "end"]
    if files is not None:
        argv += ["--tls-ca", str(files.ca), "--join-token-file", str(files.join_token)]
    return Daemon(name, (*argv, *_LOGS, *spec.agent_flags))


_LOGS = ("--log-format", "json", "--log-level", "info")
