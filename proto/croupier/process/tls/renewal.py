"""The certificate of a daemon, renewed when its files change, and its metrics.

Rule: files that cannot be used change nothing: the daemon keeps the certificate that it has, and
logs an error once for each change of the files. Handshakes read no files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, Protocol

from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest
from croupier.net.certificate import utc
from croupier.net.server_tls import ServerTls, Signature, TlsFiles
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family

# Time between two looks at the files.
LOOK_S: Final = 1.0

_log = get_logger("croupier.tls")


class RenewedTls:
    """The TLS of a daemon's listeners.

    Attributes:
        current: what handshakes use now.
        renewals, failures: numbers of changed files that were taken, and that could not be used.
        problem: why changed files are not in use now; empty if they are.
    """

    def __init__(
        self,
        files: TlsFiles,
        clock: Clock,
        check: Callable[[ServerTls], None] = lambda _: None,
        look_s: float = LOOK_S,
    ) -> None:
        """Read the files; `check` raises InvalidRequest for contents that must not be used.

        Raises:
            InvalidRequest: if they cannot be used.
        """
        self._files, self._clock, self._check, self._look_s = files, clock, check, look_s
        # Signatures of the files in use, and of files that could not be used.
        self._used = files.signature()
        self._refused: Signature | None = None
        self.current = self._load()
        self.renewals = self.failures = 0
        self.problem = ""
        self._has_expired = False
        self._looking: asyncio.Task[NoReturn] | None = None

    def latest(self) -> ServerTls:
        """Return `current`."""
        return self.current

    def start(self) -> None:
        """Look at the files from now on."""
        self._log_current("certificate_loaded")
        self._looking = asyncio.create_task(self._look_on(), name="tls-renewal")

    def stop(self) -> None:
        """Look at the files no longer."""
        if self._looking is not None:
            self._looking.cancel()

    async def look(self) -> None:
        """Take changed files, if they can be used."""
        # A file system may be slow.
        signature = await asyncio.to_thread(self._files.signature)
        if signature == self._used:
            self.problem = ""
            self._warn_of_expiry()
            return
        try:
            current = await asyncio.to_thread(self._load)
        except InvalidRequest as error:
            # Tried again at each look: a certificate may become valid without a change.
            self._on_refused(signature, error)
            return
        self._used, self.current = signature, current
        self.renewals += 1
        self.problem = ""
        self._has_expired = False
        self._log_current("certificate_renewed")

    def _load(self) -> ServerTls:
        loaded = ServerTls.load(self._files, self._clock.wall_ms() / 1000)
        self._check(loaded)
        return loaded

    def _on_refused(self, signature: Signature, error: InvalidRequest) -> None:
        self._warn_of_expiry()
        self.problem = str(error)
        if signature == self._refused:
            return
        self._refused = signature
        self.failures += 1
        expires = utc(self.current.certificate.expires_at)
        _log.error("certificate_not_renewed", error=str(error), current_expires=expires)

    async def _look_on(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._look_s)
            await self.look()

    def _warn_of_expiry(self) -> None:
        certificate = self.current.certificate
        if not self._has_expired and self._clock.wall_ms() / 1000 >= certificate.expires_at:
            self._has_expired = True
            _log.error(
                "certificate_expired", file=str(self._files.cert), since=utc(certificate.expires_at)
            )

    def _log_current(self, event: str) -> None:
        certificate = self.current.certificate
        _log.info(
            event,
            file=str(self._files.cert),
            identity=certificate.identity or certificate.subject,
            trust_domain=certificate.trust_domain or None,
            expires=utc(certificate.expires_at),
        )


class Renewal(Protocol):
    """Files of credentials that are reread when they change.

    Attributes:
        renewals, failures: numbers of changed files that were taken, and that could not be used.
        problem: why changed files are not in use now; empty if they are.
    """

    renewals: int
    failures: int
    problem: str


def _expiry(tls: RenewedTls) -> dict[str, float]:
    authority = tls.current.authority_expires_at
    own = {"own": tls.current.certificate.expires_at}
    return own if authority is None else {**own, "authority": authority}


def _outcomes(renewals: Mapping[str, Renewal]) -> dict[tuple[str, ...], float]:
    counts: dict[tuple[str, ...], float] = {}
    for name, each in renewals.items():
        counts |= {(name, "renewed"): each.renewals, (name, "failed"): each.failures}
    return counts


TLS: Final[tuple[Family[RenewedTls], ...]] = (
    Family(
        "certificate_expiry_time_seconds",
        "Time at which this daemon's certificate, and its authority, expire, in seconds since the"
        " Unix epoch.",
        _expiry,
        ("certificate",),
    ),
    Family(
        "certificate_start_time_seconds",
        "Time at which this daemon's certificate became valid, in seconds since the Unix epoch.",
        lambda tls: tls.current.certificate.starts_at,
    ),
)
# The keys are the files: `own` of --tls-cert, `etcd` of --etcd-cert.
RENEWALS: Final[tuple[Family[Mapping[str, Renewal]], ...]] = (
    Family(
        "certificate_renewals",
        "Changes of certificate files, the daemon's own or those for etcd, by outcome: renewed or"
        " failed.",
        _outcomes,
        ("certificate", "outcome"),
        is_counter=True,
    ),
    Family(
        "certificate_refused",
        "1 while changed certificate files, the daemon's own or those for etcd, cannot be used.",
        lambda each: {name: float(bool(renewal.problem)) for name, renewal in each.items()},
        ("certificate",),
    ),
)
