"""Metrics of the daemon's certificate."""

from __future__ import annotations

from typing import Final

from croupier.process.metric_families import Family
from croupier.process.tls.renewal import RenewedTls


def _expiry(tls: RenewedTls) -> dict[str, float]:
    authority = tls.current.authority_expires_at
    own = {"own": tls.current.certificate.expires_at}
    return own if authority is None else {**own, "authority": authority}


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
    Family(
        "certificate_renewals",
        "Changes of the certificate's files by outcome: renewed or failed.",
        lambda tls: {"renewed": tls.renewals, "failed": tls.failures},
        ("outcome",),
        is_counter=True,
    ),
)
