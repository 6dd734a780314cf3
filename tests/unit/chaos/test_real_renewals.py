"""Streams that end while only certificates are renewed are violations."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.real.certificates import ClusterCertificates
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.daemon import Daemon
from tests.chaos.real.faults import AuthorityStep, Fault, Kill, Renewal
from tests.chaos.real.judge import lost_streams


def cluster_of(folder: Path) -> Cluster:
    cluster = Cluster(folder, Layout(is_secured=True), seed=1)
    cluster.certificates = ClusterCertificates(folder / "tls")
    cluster.certificates.add("a1", "agent/a1")
    cluster.agents["a1"] = Daemon("a1", ["true"], folder / "a1.log", {})
    return cluster


def renewal(cluster: Cluster, kind: type[Renewal] = Renewal, meanwhile: str = "") -> Renewal:
    log = cluster.agents["a1"].log
    log.write_text('{"event": "master_lost"}\n')
    fault = kind(cluster, random.Random(1), ["certificates"])
    fault.begin()
    log.write_text(log.read_text() + meanwhile)
    fault.end()
    return fault


def test_only_streams_that_end_meanwhile_count(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    assert lost_streams([renewal(cluster)]) == []
    lost = renewal(cluster, meanwhile='{"event": "master_lost"}\n')
    assert [(found.kind, found.about) for found in lost_streams([lost])] == [("stream", "a1")]
    other: list[Fault] = [lost, Kill(cluster, random.Random(1), ["a1"])]
    assert lost_streams(other) == []


def test_an_authority_is_replaced_in_three_steps(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    assert cluster.certificates is not None
    files = cluster.certificates.files("a1")
    trusted, certificates = [], [files.cert.read_bytes()]
    for _ in range(3):
        renewal(cluster, AuthorityStep)
        trusted.append(files.ca.read_bytes().count(b"BEGIN CERTIFICATE"))
        certificates.append(files.cert.read_bytes())
    assert trusted == [2, 2, 1]
    assert len(set(certificates)) == 4
