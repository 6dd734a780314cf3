"""Groups of flags of a master, each for one of its parts; `config` has the others.

Rule: each group checks its values on construction, and raises InvalidRequest.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core.settings import LARGEST_AGENT
from croupier.master.sealing import KeyBox, open_keys
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar, parse_scalar
from croupier.net.address import Address
from croupier.process.cli import Seconds, read_by

if TYPE_CHECKING:  # the extra `oidc`, and aiohttp
    from croupier.master.oidc import Provider

# Series of roles, and of frameworks.
MOST_SERIES = 1000
MAX_URL = 2048


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFlags:
    """Bounds on what a registering agent may claim."""

    max_agent_resources: Annotated[Resources, read_by(Resources.parse)] = LARGEST_AGENT
    """Most resources that an agent may register with, such as 'cpus:256;mem:2TB'. An agent with
    more is refused. A name that is not given keeps its default, or has no bound."""

    adopt_unproven: Seconds = 0.0
    """Time after the start in which tasks that agents list are adopted without proof that a master
    launched them, such as 10m. For a store that was lost; see docs/high-availability.md."""

    def __post_init__(self) -> None:
        if self.max_agent_resources.ranges or self.max_agent_resources.sets:
            raise InvalidRequest("--max-agent-resources takes amounts only, such as cpus:256")
        if not 0 <= self.adopt_unproven <= 86400:
            raise InvalidRequest("--adopt-unproven must be at most a day")

    @property
    def max_agent(self) -> Resources:
        """The most of each resource that an agent may have."""
        return Resources({**LARGEST_AGENT.scalars, **self.max_agent_resources.scalars})


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionFlags:
    """When a master preempts tasks, and how."""

    preemption: bool = False
    """Preempt tasks on behalf of starved frameworks. Settings of a role override it."""

    preemption_tolerance: float = 0.8
    """Fraction of its fair share below which a framework starves."""

    starvation_timeout: Seconds = 60.0
    """Time that a framework must starve before the master preempts for it, such as 60s."""

    guarantee_timeout: Seconds = 15.0
    """Time that a role must be below its guarantee before the master preempts for it, such as
    15s."""

    preemption_grace: Seconds = 30.0
    """Time that a framework has to end a task that the master preempts, such as 30s."""

    preemption_min_age: Seconds = 0.0
    """Age below which tasks are not preempted, such as 1m."""

    def __post_init__(self) -> None:
        self.rules()

    def rules(self) -> PreemptionRules:
        """Return the rules of preemption for the allocator."""
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


@dataclass(frozen=True, slots=True)
class FileSize:
    """Size limit of a file, in bytes."""

    bytes: int

    @classmethod
    def parse(cls, text: str) -> FileSize:
        """Read `64MB`; raises InvalidRequest if it is no size, or not between 0.1MB and 64GB."""
        milli_mib = parse_scalar("disk", text)
        size = milli_mib * 1024 * 1024 // 1000
        if not 1024**2 // 10 <= size <= 64 * 1024**3:
            raise InvalidRequest("the size of a file must be between 0.1MB and 64GB")
        return cls(size)

    def __str__(self) -> str:
        return format_scalar("disk", self.bytes * 1000 // (1024 * 1024))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogFlags:
    """Where a master records events, and how much of it is kept."""

    event_log: Path | None = None
    """File for a log of all events, for `croupier replay`; older files are kept beside it."""

    event_log_size: Annotated[FileSize, read_by(FileSize.parse)] = FileSize(64 * 1024**2)
    """Size at which the event log begins a new file, such as 64MB."""

    event_log_files: int = 8
    """Number of event log files that are kept, the newest included."""

    def __post_init__(self) -> None:
        if not 2 <= self.event_log_files <= 1000:
            raise InvalidRequest("--event-log-files must be between 2 and 1000")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFlags:
    """How many roles and frameworks have metrics of their own."""

    metrics_roles: int = 50
    """Roles with metrics of their own, at most 1000: those with settings, then those with the
    largest shares. All others are summed as the role `other`."""

    metrics_frameworks: int = 20
    """Frameworks with metrics of their own, at most 1000: those with the largest shares, and those
    that wait for resources. All others are summed as the framework `other`."""

    def __post_init__(self) -> None:
        for flag, number in {
            "--metrics-roles": self.metrics_roles,
            "--metrics-frameworks": self.metrics_frameworks,
        }.items():
            if not 0 <= number <= MOST_SERIES:
                raise InvalidRequest(f"{flag} must be between 0 and {MOST_SERIES}")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TracingFlags:
    """Where a master sends traces of the lives of tasks."""

    otel_endpoint: str = ""
    """URL of an OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318, for a
    trace of each task's life. Needs the extra croupier[otel]."""

    otel_ratio: float = 1.0
    """Part of the tasks that are traced, 0 to 1. A task with a label `traceparent` belongs to that
    trace, and is traced if it is sampled."""

    def __post_init__(self) -> None:
        if not 0 <= self.otel_ratio <= 1:
            raise InvalidRequest("--otel-ratio must be between 0 and 1")
        if not self.otel_endpoint:
            return
        if find_spec("opentelemetry") is None:
            raise InvalidRequest(
                "--otel-endpoint needs OpenTelemetry: pip install 'croupier[otel]'"
            )
        url = urlsplit(self.otel_endpoint)
        if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query:
            raise InvalidRequest(
                "--otel-endpoint must be a URL such as http://127.0.0.1:4318, without credentials;"
                " OTEL_EXPORTER_OTLP_HEADERS may hold headers"
            )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OidcFlags:
    """The identity provider whose tokens a master accepts."""

    oidc_issuer: str = ""
    """Identity provider (OpenID Connect) that issues bearer tokens for callers, such as
    https://login.example.com/realms/main. Must equal the issuer (iss) in its tokens. Needs the
    extra croupier[oidc]."""

    oidc_audience: str = ""
    """Audience (aud) of tokens for this cluster: the client id that the provider has given it."""

    oidc_groups_claim: str = "groups"
    """Claim of a token that lists the caller's groups. Group g of the claim is the member oidc:g of
    groups of the access policy."""

    def __post_init__(self) -> None:
        if bool(self.oidc_issuer) != bool(self.oidc_audience):
            raise InvalidRequest("--oidc-issuer and --oidc-audience need each other")
        if self.oidc_issuer:
            try:
                check_provider_url(self.oidc_issuer)
            except InvalidRequest as error:
                raise InvalidRequest(f"--oidc-issuer: {error}") from None
        if not self.oidc_groups_claim:
            raise InvalidRequest("--oidc-groups-claim is empty")

    def provider(self, clock: Clock) -> Provider | None:
        """Return the provider, which verifies its tokens; None if there is none.

        Raises InvalidRequest if the extra `oidc` is not installed.
        """
        if not self.oidc_issuer:
            return None
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise InvalidRequest("--oidc-issuer needs an extra: pip install 'croupier[oidc]'")
        from croupier.master.oidc import Provider

        return Provider(self, clock)


def check_provider_url(text: str, *, takes_query: bool = False) -> str:
    """Return the URL of a provider; raises InvalidRequest unless https, or of this machine."""
    try:
        url = urlsplit(text)
        host = url.hostname or ""
    except ValueError:
        raise InvalidRequest("not an URL") from None
    is_local = url.scheme == "http" and Address(host, 0).is_loopback
    if not host or len(text) > MAX_URL or not (url.scheme == "https" or is_local):
        raise InvalidRequest("an URL with https is needed")
    if url.username is not None or url.fragment or (url.query and not takes_query):
        raise InvalidRequest("an URL without user, query and fragment is needed")
    return text


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SealingFlags:
    """Where a master gets its keys for secrets."""

    secrets_key_file: Path | None = None
    """File with the keys that encrypt the secrets of tasks: one a line, 32 bytes in base64; the
    first encrypts, all decrypt. Created if missing, except with etcd: there, all masters need the
    same keys. Without a key, tasks with secrets are refused."""

    secrets_key_command: str = ""
    """Command that prints the keys of --secrets-key-file, such as a client of a key management
    service. Runs once when the master starts, for at most 30s."""

    def __post_init__(self) -> None:
        if self.secrets_key_file and self.secrets_key_command:
            raise InvalidRequest("give one of --secrets-key-file and --secrets-key-command")

    def box(self, *, is_shared: bool) -> KeyBox:
        """Read the keys; a missing file is created, unless the store `is_shared` by masters."""
        keys = open_keys(self.secrets_key_file, self.secrets_key_command, is_shared=is_shared)
        return KeyBox(keys)
