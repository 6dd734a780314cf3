"""Configuration of an agent: flags, environment variables and a TOML file."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.agent.core.state import REREGISTRATION_S
from croupier.agent.isolation.flags import IsolationFlags, TaskUserFlags
from croupier.agent.probe import GivenResources
from croupier.model.attributes import AttributeValue, parse_attributes
from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_hostname
from croupier.model.output_bound import OutputBound, format_output_size, parse_output_size
from croupier.model.resources import NOTHING
from croupier.net.address import (
    AGENT_HTTP_PORT,
    DEFAULT_MASTER,
    MASTER_PORT,
    Address,
    parse_addresses,
)
from croupier.process.cli import Seconds, read_by
from croupier.process.http.hosts import parse_names
from croupier.process.logging import LogFormat, LogLevel
from croupier.process.tls.flags import TlsFlags, check_exposed

Recovery = Literal["strict", "best-effort", "forget-master", "cleanup"]
OnStop = Literal["leave", "end"]
Switch = Literal["on", "off"]
Permission = Literal["allow", "refuse"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFlags:
    """The bound of the output of tasks that name none.

    Raises:
        InvalidRequest: if a value is out of range.
    """

    output_size: Annotated[int, read_by(parse_output_size, show_default=format_output_size)] = (
        128 * 1024**2
    )
    """Size of one output file. The oldest --output-size bytes of stdout or stderr of a task are
    removed once it has written --output-files times as much; 0 keeps everything."""

    output_files: int = 8
    """The number of output files that are kept of stdout, and of stderr, of a task."""

    @property
    def bound(self) -> OutputBound:
        """The bound of both streams."""
        return OutputBound(self.output_size, self.output_files)

    def __post_init__(self) -> None:
        if self.output_files <= 0:
            raise InvalidRequest("--output-files must be at least 2")
        try:
            self.bound.check()
        except InvalidRequest as error:
            raise InvalidRequest(f"--output-size, --output-files: {error}") from None


def _parse_masters(text: str) -> tuple[Address, ...]:
    return parse_addresses(text, MASTER_PORT)


def _default_work_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/croupier/agent")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state) / "croupier" / "agent"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The configuration of an agent, validated on construction.

    Raises:
        InvalidRequest: if a value is out of bounds, or would expose the agent unprotected.
    """

    master: Annotated[tuple[Address, ...], read_by(_parse_masters)] = (DEFAULT_MASTER,)
    """Address of the master, or of all masters: HOST:PORT[,HOST:PORT...]."""

    http: Annotated[Address, read_by(Address.parse)] = Address("127.0.0.1", AGENT_HTTP_PORT)  # noqa: RUF009 - frozen
    """Address to serve /metrics, /healthz, /readyz and /output on; port 0 picks a free port."""

    http_names: Annotated[tuple[str, ...], read_by(parse_names)] = ()
    """Further names, separated by commas, accepted in the Host header of HTTP requests. The
    machine's hostname and addresses are always accepted."""

    mesos_listen: Annotated[Address | None, read_by(Address.parse)] = None
    """Address on this machine to serve executors of Mesos on, by its v1 executor API; port 0 picks
    a free port, which executors do not find again after a restart. Off by default."""

    work_dir: Path = field(default_factory=_default_work_dir)
    """Directory of the tasks' sandboxes and the agent's records."""

    recover: Recovery = "strict"
    """How to start on the records of an earlier agent: strict refuses to start if records are
    damaged, best-effort continues without the damaged ones, forget-master keeps the tasks and
    forgets the newest master (for use after a false master was followed), and cleanup ends all
    tasks of that agent, removes its records and exits."""

    on_stop: OnStop = "leave"
    """What to do with tasks on SIGTERM: leave keeps them running for the next agent on this work
    dir; end ends them, and the agent leaves the cluster."""

    executor_reregistration_timeout: Seconds = REREGISTRATION_S
    """Time in which an executor has to register again after a restart of the agent, or after its
    stream broke. Then it is ended."""

    resources: Annotated[GivenResources, read_by(GivenResources.parse)] = GivenResources(  # noqa: RUF009
        NOTHING, frozenset()
    )
    """Resources of the agent, such as 'cpus:4;mem:8GB;ports:[31000-32000]'. The agent probes the
    machine for cpus, mem, disk and ports that are not named."""

    devices: str | None = None
    """TOML file that names the agent's devices, such as its GPUs, one [[device]] each; or
    driver:NAME for a driver of an installed package. They are added to --resources."""

    attributes: Annotated[
        Mapping[str, AttributeValue], read_by(parse_attributes, show_default=False)
    ] = field(default_factory=dict)
    """Attributes that frameworks see, such as 'rack:r1;zone:a'."""

    hostname: str = field(default_factory=socket.gethostname)
    """Name of the agent."""

    isolate: IsolationFlags = IsolationFlags()  # noqa: RUF009 - frozen
    users: TaskUserFlags = TaskUserFlags()  # noqa: RUF009 - frozen
    output: OutputFlags = OutputFlags()

    exec: Permission = "allow"
    """Whether `croupier exec` may run commands in the environment of this agent's tasks. A command
    has the rights of its task; the caller needs the permission exec on the task's role."""

    tls: TlsFlags = TlsFlags()  # noqa: RUF009 - frozen

    join_token_file: Path | None = None
    """File with a join token, for an agent without a certificate of its own. The agent makes a
    token, keeps it in --work-dir, and has a master accept it once."""

    metrics_auth: Switch | None = None
    """Whether /metrics needs a credential: the client certificate of a client of this cluster, or
    the token in --metrics-token-file. Default: on with a certificate or a token, else off."""

    metrics_token_file: Path | None = None
    """File, readable by the agent's user only, with a token on its first line that may read
    /metrics."""

    insecure: bool = False
    """Allow addresses beyond this machine for --http and --master, without encryption or
    authentication."""

    log_format: LogFormat = "auto"
    """Format of log lines: text, json, journal (json after the priority for journald), or auto:
    text on a terminal, journal if stderr is the journal, else json."""

    log_level: LogLevel = "info"
    """Lowest level that is logged."""

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The files of its credentials."""
        files = (self.tls.tls_key, self.join_token_file, self.metrics_token_file)
        return tuple(path for path in files if path is not None)

    def __post_init__(self) -> None:
        if not self.insecure:
            self._check_protected()
        if (
            self.metrics_auth == "on"
            and self.tls.tls_ca is None
            and self.metrics_token_file is None
        ):
            raise InvalidRequest(
                "--metrics-auth on needs --metrics-token-file, or --tls-ca for client certificates"
            )
        if self.mesos_listen is not None and not self.mesos_listen.is_loopback:
            raise InvalidRequest(
                "--mesos-listen: executors run on this machine; give an address such as"
                " 127.0.0.1:5051"
            )
        if not self.master:
            raise InvalidRequest("--master names no master")
        if any(address.port == 0 for address in self.master):
            raise InvalidRequest("--master: port 0 cannot be connected to")
        try:
            check_hostname(self.hostname)
        except InvalidRequest as error:
            raise InvalidRequest(f"--hostname: {error}") from None

    def protects_metrics(self, *, is_authenticated: bool) -> bool:
        """Return whether /metrics needs a credential; `is_authenticated`: the agent has one."""
        if self.metrics_auth is None:
            return is_authenticated or self.metrics_token_file is not None
        return self.metrics_auth == "on"

    @property
    def is_confined(self) -> bool:
        """Whether connections to masters stay on this machine, because they are plain text."""
        return not self.insecure and not self.tls.client().is_encrypted

    def _check_protected(self) -> None:
        has_certificate = self.tls.has_certificate
        # Output needs a link that the master signs.
        check_exposed(self.http, is_encrypted=has_certificate, is_authenticated=has_certificate)
        remote = [address for address in self.master if not address.is_loopback]
        if remote and self.is_confined and self.recover != "cleanup":
            raise InvalidRequest(
                f"the master at {remote[0]} is on another machine, and nothing would be encrypted"
                " or authenticated; give --tls-ca, or --insecure to accept that"
            )
