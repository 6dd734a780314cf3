"""Credentials that a daemon renews when their files change, such as its certificate; metrics."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn

from croupier.model.clock import Clock
from croupier.model.errors import CroupierError
from croupier.net.certificate import utc
from croupier.net.server_tls import ServerTls, Signature, TlsFiles, signature_of
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family

# Time between two looks at the files.
LOOK_S: Final = 1.0

_log = get_logger("croupier.tls")


class Renewal(ABC):
    """Files of credentials, which are taken again when they change, from `start` to `stop`.

    Rule: files that cannot be used change nothing, and are logged once for each change of them.

    Attributes:
        renewals, failures: numbers of changed files that were taken, and that could not be used.
        problem: why changed files are not in use now; empty if they are.
    """

    def __init__(self, paths: tuple[Path, ...], again_s: float = 0.0) -> None:
        """Watch `paths`, which are in use now; wait `again_s` more after a failed attempt."""
        self._paths, self._again_s = paths, again_s
        # Signatures of the files in use, and of files that could not be used.
        self._used = signature_of(paths)
        self._refused: Signature | None = None
        self.renewals = self.failures = 0
        self.problem = ""
        self._looking: asyncio.Task[NoReturn] | None = None

    def start(self) -> None:
        """Start to watch the files, if there are any."""
        if self._paths:
            self._looking = asyncio.create_task(self._look_on(), name="renewal")

    def stop(self) -> None:
        """Stop watching the files."""
        if self._looking is not None:
            self._looking.cancel()

    async def look(self) -> bool:
        """Load changed files; return False if they cannot be used.

        They are tried again at each look: a certificate may become valid without a change.
        """
        # A file system may be slow.
        signature = await asyncio.to_thread(signature_of, self._paths)
        if signature == self._used:
            self.problem = ""
            return True
        try:
            await self._take()
        except CroupierError as error:
            self.problem = str(error)
            if signature != self._refused:
                self._refused = signature
                self.failures += 1
                self._log_refused(error)
            return False
        self._used, self._refused = signature, None
        self.renewals += 1
        self.problem = ""
        return True

    @abstractmethod
    async def _take(self) -> None:
        """Load the files and log that; raises CroupierError if they cannot be used."""

    @abstractmethod
    def _log_refused(self, error: CroupierError) -> None: ...

    async def _look_on(self) -> NoReturn:
        while True:
            await asyncio.sleep(LOOK_S)
            if not await self.look():
                await asyncio.sleep(self._again_s)


class RenewedTls(Renewal):
    """The TLS of a daemon's listeners; handshakes use `current`, and read no files."""

    def __init__(
        self, files: TlsFiles, clock: Clock, check: Callable[[ServerTls], None] = lambda _: None
    ) -> None:
        """Read the files; raises InvalidRequest if they cannot be used, or if `check` does."""
        super().__init__(files.paths)
        self._files, self._clock, self._check = files, clock, check
        self.current = self._load()
        self._has_expired = False

    def latest(self) -> ServerTls:
        """Return `current`."""
        return self.current

    def start(self) -> None:
        """Log the certificate, and start to watch the files."""
        self._log_current("certificate_loaded")
        super().start()

    async def look(self) -> bool:
        """Load changed files, and warn once when the certificate in use has expired."""
        is_taken = await super().look()
        certificate = self.current.certificate
        if not self._has_expired and self._clock.wall_ms() / 1000 >= certificate.expires_at:
            self._has_expired = True
            _log.error(
                "certificate_expired", file=str(self._files.cert), since=utc(certificate.expires_at)
            )
        return is_taken

    def _load(self) -> ServerTls:
        loaded = ServerTls.load(self._files, self._clock.wall_ms() / 1000)
        self._check(loaded)
        return loaded

    async def _take(self) -> None:
        self.current = await asyncio.to_thread(self._load)
        self._has_expired = False
        self._log_current("certificate_renewed")

    def _log_refused(self, error: CroupierError) -> None:
        expires = utc(self.current.certificate.expires_at)
        _log.error("certificate_not_renewed", error=str(error), current_expires=expires)

    def _log_current(self, event: str) -> None:
        certificate = self.current.certificate
        _log.info(
            event,
            file=str(self._files.cert),
            identity=certificate.identity or certificate.subject,
            trust_domain=certificate.trust_domain or None,
            expires=utc(certificate.expires_at),
        )


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
