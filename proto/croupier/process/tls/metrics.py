"""Metrics of the daemon's certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from croupier.process.metric_families import Family
from croupier.process.tls.renewal import RenewedTls


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
