"""What a master is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core.settings import Settings
from croupier.master.etcd.target import SCHEME, EtcdAccess, EtcdTarget
from croupier.master.weights import Weights
from croupier.model.errors import InvalidRequest
from croupier.model.scalar import format_scalar, parse_scalar
from croupier.net.address import DEFAULT_MASTER, MASTER_HTTP_PORT, Address
from croupier.process.cli import Seconds, read_by
from croupier.process.http.hosts import format_names, parse_names
from croupier.process.logging import LogFormat, LogLevel

# Of an offer: the longest that operators may set, and the longest unless they do.
LONGEST_LEASE_S = 3600.0
DEFAULT_MAX_LEASE_S = 15.0

PolicyName = Literal["drf", "yarn-drf", "fifo", "asset", "single-resource", "slots", "random"]
AgentOrder = Literal["arrival", "random", "pack", "spread"]
Recovery = Literal["strict", "old-store", "new-cluster"]


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """Where the master keeps what must outlive it: a file, or etcd; memory if neither is given.

    Attributes:
        path: of the SQLite file.
        etcd: over which several masters also choose who leads.
    """

    path: Path | None
    etcd: EtcdTarget | None = None

    @classmethod
    def parse(cls, text: str) -> StoreChoice:
        """Read `memory`, `sqlite:PATH` or `etcd://HOST:PORT[,...]/PREFIX`.

        Raises:
            InvalidRequest: if it is none of these.
        """
        if text == "memory":
            return cls(None)
        if text.startswith(SCHEME):
            return cls(None, EtcdTarget.parse(text))
        kind, _, path = text.partition(":")
        if kind != "sqlite" or not path:
            raise InvalidRequest(
                f"{text!r} is not a store: memory or sqlite:PATH, or {SCHEME}HOST:PORT,.../PREFIX"
            )
        return cls(Path(path).expanduser())

    def __str__(self) -> str:
        if self.etcd is not None:
            return str(self.etcd)
        return "memory" if self.path is None else f"sqlite:{self.path}"


@dataclass(frozen=True, slots=True)
class FileSize:
    """How large a file may become, in bytes."""

    bytes: int

    @classmethod
    def parse(cls, text: str) -> FileSize:
        """Read `64MB`.

        Raises:
            InvalidRequest: if it is not a size, or not between 0.1MB and 64GB.
        """
        milli_mib = parse_scalar("disk", text)
        size = milli_mib * 1024 * 1024 // 1000
        if not 1024**2 // 10 <= size <= 64 * 1024**3:
            raise InvalidRequest("the size of a file must be between 0.1MB and 64GB")
        return cls(size)

    def __str__(self) -> str:
        return format_scalar("disk", self.bytes * 1000 // (1024 * 1024))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class MasterConfig:
    """A master's configuration, validated on construction.

    Raises:
        InvalidRequest: if a value is out of bounds, or would expose the master unprotected.
    """

    listen: Annotated[Address, read_by(Address.parse)] = DEFAULT_MASTER
    """Where to listen for frameworks, agents and operators (gRPC)."""

    http: Annotated[Address, read_by(Address.parse)] = Address("127.0.0.1", MASTER_HTTP_PORT)  # noqa: RUF009
    """Where to serve /metrics, /healthz and /readyz."""

    http_names: Annotated[
        tuple[str, ...], read_by(parse_names, negative=(), show_default=format_names)
    ] = ()
    """Further names, joined by commas, that HTTP requests may give this machine in their Host
    header; its hostname and addresses are allowed anyway."""

    store: Annotated[StoreChoice, read_by(StoreChoice.parse)] = field(
        default_factory=lambda: StoreChoice(Path("croupier-master.db"))
    )
    """What outlives the master: sqlite:PATH, or memory for a trial; for several masters
    etcd://HOST:PORT,HOST:PORT/PREFIX."""

    recover: Recovery = "strict"
    """What to do about a store that was lost or replaced by an older copy: strict refuses it.
    old-store goes on with the older copy, and gives up what was committed after it. new-cluster
    begins a new cluster where there was one."""

    advertise: Annotated[Address | None, read_by(Address.parse)] = None
    """Where other machines find this master, of several; else where it listens."""

    lease: Seconds = 5.0
    """Lifetime of the leader's lease, 2s to 60s: a leader that cannot reach etcd steps down."""

    etcd_ca: Path | None = None
    """Certificates (PEM) of who signed those of etcd's members; encrypts."""

    etcd_cert: Path | None = None
    """This master's certificate (PEM) for etcd."""

    etcd_key: Path | None = None
    """Its key (PEM)."""

    etcd_user: str = ""
    """This master's name at etcd, if that wants one."""

    etcd_password_file: Path | None = None
    """A file with the password of that name on its first line."""

    weights: Annotated[Weights, read_by(Weights.parse)] = field(default_factory=Weights)
    """Weights of roles, such as 'ads=2,web=0.5', where no operator has set any; else 1."""

    policy: PolicyName = "drf"
    """Whose turn it is: see docs/fairness.md."""

    agent_order: AgentOrder = "arrival"
    """Which agent is dealt first: as it came to have room, by lot, the fullest, the emptiest."""

    preemption: bool = False
    """Make room for frameworks that starve, where no role says otherwise."""

    preemption_tolerance: float = 0.8
    """Part of its fair share that a framework must be below to starve."""

    starvation_timeout: Seconds = 60.0
    """How long a framework must be below that, such as 60s."""

    guarantee_timeout: Seconds = 15.0
    """How long a role must be below its guarantee, such as 15s."""

    preemption_grace: Seconds = 30.0
    """How long a framework has to end a task that it is asked for, such as 30s."""

    preemption_min_age: Seconds = 0.0
    """Tasks that have run for less than this, such as 1m, are not asked for."""

    offer_lease: Seconds = 10.0
    """How long a framework may hold an offer if it asks for no other lease, such as 10s."""

    max_offer_lease: Seconds | None = None
    """The longest that any framework may hold an offer; one that asks for more gets this. 15s
    unless given, or --offer-lease if that is longer."""

    heartbeat: Seconds = 15.0
    """How often sessions say that they are there, such as 15s."""

    agent_timeout: Seconds = 75.0
    """Silence after which an agent is unreachable, such as 75s."""

    agent_return_timeout: Seconds = 600.0
    """How long a new leader waits for an agent that an earlier one knew, such as 10m."""

    agent_removals: int = 100
    """How many agents may become unreachable within a minute; others wait for their turn."""

    event_log: Path | None = None
    """Keep a log of all events in this file and older ones beside it, for `croupier replay`."""

    event_log_size: Annotated[FileSize, read_by(FileSize.parse)] = FileSize(64 * 1024**2)
    """How large a file of the event log may become, such as 64MB, before a new one is begun."""

    event_log_files: int = 8
    """How many files of the event log are kept, with the newest."""

    insecure: bool = False
    """Listen beyond this machine without encryption or authentication."""

    log_format: LogFormat = "auto"
    """text, json, or auto: text on a terminal."""

    log_level: LogLevel = "info"
    """The least that is logged."""

    def __post_init__(self) -> None:
        for address in (self.listen, self.http):
            if not address.is_loopback and not self.insecure:
                raise InvalidRequest(
                    f"{address} can be reached from other machines, and nothing would be"
                    " encrypted or authenticated; give --insecure to accept that"
                )
        if not 2 <= self.lease <= 60:
            raise InvalidRequest("--lease must be between 2 and 60 seconds")
        if not 0.1 <= self.offer_lease <= LONGEST_LEASE_S:
            raise InvalidRequest("--offer-lease must be between 0.1 seconds and an hour")
        if not self.offer_lease <= self.longest_lease_s <= LONGEST_LEASE_S:
            raise InvalidRequest(
                "--max-offer-lease must be at least --offer-lease, and at most an hour"
            )
        if not 0.1 <= self.heartbeat <= 300:
            raise InvalidRequest("--heartbeat must be between 0.1 and 300 seconds")
        if not 2 * self.heartbeat <= self.agent_timeout <= 86400:
            raise InvalidRequest(
                "--agent-timeout must be at least twice --heartbeat, at most a day"
            )
        if not 2 <= self.event_log_files <= 1000:
            raise InvalidRequest("--event-log-files must be between 2 and 1000")
        if self.store.etcd is None:
            self._check_alone()
        else:
            self._check_several(self.store.etcd)
        if not 1 <= self.agent_return_timeout <= 86400:
            raise InvalidRequest("--agent-return-timeout must be between 1 second and a day")
        if not 1 <= self.agent_removals <= 1_000_000:
            raise InvalidRequest("--agent-removals must be between 1 and 1,000,000")
        self._preemption()

    @property
    def longest_lease_s(self) -> float:
        """The longest that any framework may hold an offer."""
        if self.max_offer_lease is not None:
            return self.max_offer_lease
        return max(self.offer_lease, DEFAULT_MAX_LEASE_S)

    def settings(self) -> Settings:
        """The numbers that the core goes by."""
        return Settings(
            heartbeat_s=self.heartbeat,
            agent_timeout_s=self.agent_timeout,
            return_timeout_s=self.agent_return_timeout,
            removals=self.agent_removals,
            offer_lease_s=self.offer_lease,
            max_offer_lease_s=self.longest_lease_s,
            preemption=self._preemption(),
        )

    def allocator(self) -> Allocator:
        """An allocator of this policy, with nothing in it."""
        return Allocator(policies.make(self.policy), self.rules(), self.weights.settings())

    def rules(self) -> Rules:
        """What bounds a pass."""
        return Rules(order=self.agent_order)

    def etcd_access(self) -> EtcdAccess:
        """By what right this master speaks to etcd.

        Raises:
            InvalidRequest: if a file cannot be read, or one of a pair is missing.
        """
        return EtcdAccess.read(
            self.etcd_ca, self.etcd_cert, self.etcd_key, self.etcd_user, self.etcd_password_file
        )

    def _check_alone(self) -> None:
        """A master alone must not be given what only several need."""
        for flag, value in {
            "--advertise": self.advertise,
            "--etcd-ca": self.etcd_ca,
            "--etcd-cert": self.etcd_cert,
            "--etcd-key": self.etcd_key,
            "--etcd-user": self.etcd_user,
            "--etcd-password-file": self.etcd_password_file,
        }.items():
            if value:
                raise InvalidRequest(f"{flag} is for --store {SCHEME}...")

    def _check_several(self, target: EtcdTarget) -> None:
        """Several masters must find each other, and etcd must not be reached in the open."""
        if self.advertise is None and self.listen.host in ("0.0.0.0", "::"):  # noqa: S104
            raise InvalidRequest(
                f"nobody can connect to {self.listen.host}: give --advertise HOST:PORT, by"
                " which frameworks, agents and the other masters find this one"
            )
        if self.advertise is not None and not self.advertise.port:
            raise InvalidRequest("--advertise needs a port")
        if self.etcd_access().is_encrypted or self.insecure:
            return
        for member in target.endpoints:
            if not member.is_loopback:
                raise InvalidRequest(
                    f"what is said to etcd at {member} would not be encrypted; give --etcd-ca,"
                    " or --insecure to accept that"
                )

    def _preemption(self) -> PreemptionRules:
        if not isfinite(self.preemption_tolerance):
            raise InvalidRequest("--preemption-tolerance must be a number")
        return PreemptionRules(
            is_on=self.preemption,
            tolerance=Fraction(self.preemption_tolerance).limit_denominator(1000),
            fair_timeout_s=self.starvation_timeout,
            guarantee_timeout_s=self.guarantee_timeout,
            grace_s=self.preemption_grace,
            min_age_s=self.preemption_min_age,
        )
