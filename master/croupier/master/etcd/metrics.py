"""Metrics of etcd as this master sees it, whether it leads or follows."""

from __future__ import annotations

from typing import Final

from croupier.master.etcd.client import EtcdClient
from croupier.process.metric_families import Family

ETCD: Final[tuple[Family[EtcdClient], ...]] = (
    Family(
        "etcd_silent_seconds",
        "Time since etcd last answered this master.",
        lambda client: client.silent_s,
    ),
    Family(
        "etcd_members_failing",
        "Members of etcd that failed when this master last asked them.",
        lambda client: client.failing,
    ),
    Family(
        "etcd_certificate_expiry_time_seconds",
        "Time at which this master's certificate for etcd expires, in seconds since the Unix"
        " epoch.",
        lambda client: client.certificate_expires_at,
    ),
    Family(
        "etcd_requests",
        "Requests to members of etcd by outcome: answered or failed.",
        lambda client: {"answered": client.answers, "failed": client.failures},
        ("outcome",),
        is_counter=True,
    ),
)
