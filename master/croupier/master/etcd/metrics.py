"""How etcd fares, as this master sees it, whether it leads or follows."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.master.etcd.client import EtcdClient


class EtcdCollector(Collector):
    """Reads the client's counts at each scrape."""

    def __init__(self, client: EtcdClient) -> None:
        """Of what `client` asks."""
        self._client = client

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        client = self._client
        yield GaugeMetricFamily(
            "croupier_etcd_silent_seconds",
            "Since etcd last answered this master, which asks at least twice a lease.",
            value=client.silent_s,
        )
        yield GaugeMetricFamily(
            "croupier_etcd_members_failing",
            "Members of etcd that failed when this master last asked them.",
            value=client.failing,
        )
        requests = CounterMetricFamily(
            "croupier_etcd_requests",
            "Questions to members of etcd: answered, and failed.",
            labels=["outcome"],
        )
        requests.add_metric(["answered"], client.answers)
        requests.add_metric(["failed"], client.failures)
        yield requests
