"""Configuration of a master: flags, environment variables and a TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.master import flags
from croupier.master.access.rate_limits import RateLimits
from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.core.settings import Settings
from croupier.master.etcd.target import SCHEME, EtcdFlags, EtcdTarget
from croupier.master.sealing import KeyBox
from croupier.master.weights import Weights
from croupier.model.errors import InvalidRequest
from croupier.net.address import DEFAULT_MASTER, MASTER_HTTP_PORT, Address
from croupier.process.cli import Seconds, read_by
from croupier.process.http.hosts import parse_names
from croupier.process.logging import LogFormat, LogLevel
from croupier.process.tls.flags import TlsFlags, check_exposed

# Upper bound and default of --max-offer-lease.
LONGEST_LEASE_S = 3600.0
DEFAULT_MAX_LEASE_S = 15.0

PolicyName = Literal["drf", "yarn-drf", "fifo", "asset", "single-resource", "slots", "random"]
AgentOrder = Literal["arrival", "random", "pack", "spread"]
Recovery = Literal["strict", "old-store", "new-cluster"]
Switch = Literal["on", "off"]


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The store of the master's records: a file or etcd; memory if neither is given.

    Attributes:
        path: of the SQLite file.
        etcd: also elects the leader among several masters.
    """

    path: Path | None
    etcd: EtcdTarget | None = None

    @classmethod
    def parse(cls, text: str) -> StoreChoice:
        """Read `memory`, `sqlite:PATH` or `etcd://HOST:PORT[,...]/PREFIX`.

        Raises InvalidRequest if it is none of these.
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


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class MasterConfig:
    """A master's configuration, validated on construction.

    Raises InvalidRequest if a value is out of bounds, or would expose the master unprotected.
    """

    listen: Annotated[Address, read_by(Address.parse)] = DEFAULT_MASTER
    """Address for frameworks, agents and operators (gRPC)."""

    token_listen: Annotated[Address | None, read_by(Address.parse)] = None
    """Second address for callers without a certificate, who send bearer tokens (gRPC over TLS).
    Use it with --tls-ca: then --listen requires certificates."""

    http: Annotated[Address, read_by(Address.parse)] = Address("127.0.0.1", MASTER_HTTP_PORT)  # noqa: RUF009
    """Address for /metrics, /healthz and /readyz."""

    http_names: Annotated[tuple[str, ...], read_by(parse_names)] = ()
    """Further names, separated by commas, accepted in the Host header of HTTP requests. The
    hostname and addresses of this machine are always accepted."""

    mesos_listen: Annotated[Address | None, read_by(Address.parse)] = None
    """Address for frameworks of Apache Mesos (its v1 HTTP API), such as 0.0.0.0:5050. Default: none
    are served."""

    store: Annotated[StoreChoice, read_by(StoreChoice.parse)] = field(
        default_factory=lambda: StoreChoice(Path("croupier-master.db"))
    )
    """Store of the master's records: sqlite:PATH, or memory for a trial; with several masters
    etcd://HOST:PORT,HOST:PORT/PREFIX."""

    recover: Recovery = "strict"
    """How to start on a store that was lost or replaced by an older copy. strict: refuse to start.
    old-store: continue with the older copy, and give up what was committed after it.
    new-cluster: create a new cluster where there was one."""

    advertise: Annotated[Address | None, read_by(Address.parse)] = None
    """Address at which peers reach this master, if there are several masters. Default: --listen."""

    lease: Seconds = 5.0
    """Lifetime of the leader lease, 2s to 60s. A leader that cannot reach etcd steps down after
    it."""

    etcd: EtcdFlags = EtcdFlags()  # noqa: RUF009 - frozen

    weights: Annotated[Weights, read_by(Weights.parse)] = field(default_factory=Weights)
    """Default weights of roles, such as 'ads=2,web=0.5'; 1 for all others. An operator's settings
    override them."""

    policy: PolicyName = "drf"
    """Order in which frameworks are served: see docs/fairness.md."""

    agent_order: AgentOrder = "arrival"
    """Order in which agents are offered: arrival (first free), random, pack (best fit) or spread
    (worst fit)."""

    preemption: flags.PreemptionFlags = flags.PreemptionFlags()  # noqa: RUF009 - frozen

    offer_lease: Seconds = 10.0
    """Default lease of an offer, such as 10s. A framework may ask for another one."""

    max_offer_lease: Seconds | None = None
    """Longest lease of an offer; a framework that asks for more gets this. Default: 15s, or
    --offer-lease if that is longer."""

    heartbeat: Seconds = 15.0
    """Interval between heartbeats on a session, such as 15s; up to twice as long for agents in a
    cluster of thousands."""

    agent_timeout: Seconds = 75.0
    """Time without messages after which an agent is unreachable, such as 75s."""

    agent_return_timeout: Seconds = 600.0
    """Time that a new leader waits for known agents to re-register, such as 10m."""

    admission: flags.AdmissionFlags = flags.AdmissionFlags()  # noqa: RUF009 - frozen

    agent_removals: int = 100
    """Maximum number of agents that become unreachable within a minute; further agents wait."""

    recording: flags.EventLogFlags = flags.EventLogFlags()  # noqa: RUF009 - frozen

    tls: TlsFlags = TlsFlags()  # noqa: RUF009 - frozen

    auth: bool | None = None
    """Authenticate every caller, and let it do only what rules allow. Default: on with --tls-cert,
    else off. Without TLS only on loopback addresses."""

    oidc: flags.OidcFlags = flags.OidcFlags()  # noqa: RUF009 - frozen

    sealing: flags.SealingFlags = flags.SealingFlags()  # noqa: RUF009 - frozen

    admin_token_file: Path | None = None
    """File (mode 0600) with a token that always administers the cluster, for the first access and
    to recover access. It is created if it does not exist. Only this master accepts the token."""

    calls_per_second: float = 200.0
    """Unary calls per second that one principal may make, with --auth. Bursts may have twice as
    many."""

    stream_calls_per_second: float = 250_000.0
    """Calls per second that the master reads from the streams of one principal, with --auth. A call
    counts once for each 20 us of its estimated time."""

    audit_log: Path | None = None
    """File for a JSON line about every call that changes something, and every refused call. Older
    files are kept beside it. Default: with --auth, to the log of the master."""

    metrics_auth: Switch | None = None
    """Whether /metrics needs a credential: a token or client certificate that may read-metrics, or
    the token in --metrics-token-file. Default: on with --auth or --metrics-token-file, else off."""

    series: flags.SeriesFlags = flags.SeriesFlags()  # noqa: RUF009 - frozen

    tracing: flags.TracingFlags = flags.TracingFlags()  # noqa: RUF009 - frozen

    metrics_token_file: Path | None = None
    """File, readable by the master's user only, with a token on its first line that may read
    /metrics. It works also on a follower, which knows no other tokens."""

    insecure: bool = False
    """Allow listening on non-loopback addresses without encryption or authentication."""

    log_format: LogFormat = "auto"
    """Format of log lines: text, json, journal (json after the priority for journald), or auto:
    text on a terminal, journal if stderr is the journal, else json."""

    log_level: LogLevel = "info"
    """Lowest level that is logged."""

    def __post_init__(self) -> None:
        self._check_listeners()
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
        if self.store.etcd is None:
            self._check_alone()
        else:
            self._check_several(self.store.etcd)
        if not 1 <= self.agent_return_timeout <= 86400:
            raise InvalidRequest("--agent-return-timeout must be between 1 second and a day")
        if not 1 <= self.agent_removals <= 1_000_000:
            raise InvalidRequest("--agent-removals must be between 1 and 1,000,000")
        self._check_access()

    @property
    def requires_auth(self) -> bool:
        """Whether every caller is authenticated, and authorised by rules."""
        return self.tls.has_certificate if self.auth is None else self.auth

    @property
    def protects_metrics(self) -> bool:
        """Whether /metrics requires a credential."""
        if self.metrics_auth is None:
            return self.requires_auth or self.metrics_token_file is not None
        return self.metrics_auth == "on"

    @property
    def longest_lease_s(self) -> float:
        """The longest lease of an offer."""
        if self.max_offer_lease is not None:
            return self.max_offer_lease
        return max(self.offer_lease, DEFAULT_MAX_LEASE_S)

    def secret_box(self) -> KeyBox:
        """Read or create the keys for secrets; raises InvalidRequest if they cannot be read."""
        return self.sealing.box(is_shared=self.store.etcd is not None)

    def settings(self) -> Settings:
        """Return the settings of the core."""
        return Settings(
            heartbeat_s=self.heartbeat,
            agent_timeout_s=self.agent_timeout,
            return_timeout_s=self.agent_return_timeout,
            removals=self.agent_removals,
            offer_lease_s=self.offer_lease,
            max_offer_lease_s=self.longest_lease_s,
            preemption=self.preemption.rules(),
            auth=self.requires_auth,
            adopt_unproven_s=self.admission.adopt_unproven,
            max_agent=self.admission.max_agent,
        )

    def rate_limits(self) -> RateLimits:
        """Return the limits of each principal."""
        return RateLimits(self.calls_per_second, self.stream_calls_per_second)

    def allocator(self) -> Allocator:
        """Create an empty allocator of this policy."""
        return Allocator(policies.make(self.policy), self.rules(), self.weights.settings())

    def rules(self) -> Rules:
        """Return the rules of allocation passes."""
        return Rules(order=self.agent_order, remembers_misfits=True)

    def _check_listeners(self) -> None:
        """Refuse listeners that are not protected, unless --insecure accepts that."""
        is_encrypted = self.tls.has_certificate
        if self.tls.tls_ca is not None and not is_encrypted:
            raise InvalidRequest("a master with --tls-ca needs --tls-cert and --tls-key")
        if self.token_listen is not None and self.tls.tls_ca is None:
            raise InvalidRequest(
                "--token-listen is for a master with --tls-ca; without it --listen takes tokens"
            )
        listeners = [each for each in (self.listen, self.http, self.mesos_listen) if each]
        exposed = [each for each in listeners if not each.is_loopback]
        if self.auth and exposed and not is_encrypted:
            raise InvalidRequest(
                f"--auth without TLS is for loopback addresses: tokens would cross the network to"
                f" {exposed[0]} unencrypted; give --tls-cert and --tls-key"
            )
        if self.insecure:
            return
        for address in (*listeners, self.token_listen or self.listen):
            check_exposed(address, is_encrypted=is_encrypted, is_authenticated=self.requires_auth)

    def _check_access(self) -> None:
        """Refuse rates out of bounds, and an admin's token that nothing asks for."""
        for flag, rate in {
            "--calls-per-second": self.calls_per_second,
            "--stream-calls-per-second": self.stream_calls_per_second,
        }.items():
            if not 1 <= rate <= 1_000_000:
                raise InvalidRequest(f"{flag} must be between 1 and 1,000,000")
        can_scrape = self.requires_auth or self.tls.tls_ca is not None or self.metrics_token_file
        if self.metrics_auth == "on" and not can_scrape:
            raise InvalidRequest("--metrics-auth on needs --auth, or --metrics-token-file")
        if self.admin_token_file is not None and not self.requires_auth:
            raise InvalidRequest("--admin-token-file is for a master with --auth")
        if self.oidc.oidc_issuer and not self.requires_auth:
            raise InvalidRequest("--oidc-issuer is for a master with --auth")

    def _check_alone(self) -> None:
        """Refuse flags that only several masters need."""
        for flag, value in {
            "--advertise": self.advertise,
            "--etcd-ca": self.etcd.etcd_ca,
            "--etcd-cert": self.etcd.etcd_cert,
            "--etcd-key": self.etcd.etcd_key,
            "--etcd-user": self.etcd.etcd_user,
            "--etcd-password-file": self.etcd.etcd_password_file,
        }.items():
            if value:
                raise InvalidRequest(f"{flag} is for --store {SCHEME}...")

    def _check_several(self, target: EtcdTarget) -> None:
        """Refuse an address that other masters cannot reach, and unencrypted etcd."""
        if self.advertise is None and self.listen.host in ("0.0.0.0", "::"):  # noqa: S104
            raise InvalidRequest(
                f"no peer can connect to {self.listen.host}: give --advertise HOST:PORT, the"
                " address at which frameworks, agents and other masters find this one"
            )
        if self.advertise is not None and not self.advertise.port:
            raise InvalidRequest("--advertise needs a port")
        self.etcd.check_protected(target, is_insecure=self.insecure)
