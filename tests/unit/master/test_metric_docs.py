"""docs/metrics.md lists every metric of the master with its labels, type and HELP text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from prometheus_client import CollectorRegistry

from croupier.master.access.security import SECURITY
from croupier.master.core.facts import Fact
from croupier.master.etcd.upkeep import ETCD
from croupier.master.eventlog.recorder import EVENT_LOG
from croupier.master.log import EVENTS
from croupier.master.metrics import gauges
from croupier.master.metrics.counters import FACT_COUNTERS, Metrics
from croupier.master.metrics.series import FRAMEWORKS, ROLES
from croupier.master.services.execs import EXECS
from croupier.master.tracing.tracing import TRACING
from croupier.process.metric_families import Family
from croupier.process.process_metrics import PROCESS
from croupier.process.tls.renewal import TLS

PAGE = Path(__file__).parents[3] / "docs/metrics.md"
FAMILIES: list[Family[Any]] = [
    *gauges.PROCESS,
    *gauges.LEADERSHIP,
    *gauges.TERM,
    *gauges.STATE,
    *ROLES,
    *FRAMEWORKS,
    *PROCESS,
    *TRACING,
    *EVENT_LOG,
    *ETCD,
    *SECURITY,
    *EXECS,
    *TLS,
]


def row(name: str, labels: tuple[str, ...], kind: str, text: str) -> str:
    suffix = "_total" if kind == "counter" else ""
    labelled = f"{{{','.join(labels)}}}" if labels else ""
    return f"| `{name}{suffix}{labelled}` | {kind} | {text} |"


def rows() -> Iterator[str]:
    for entry in FACT_COUNTERS:
        yield row(entry.name, entry.labels, "counter", entry.text)
    for family in FAMILIES:
        kind = "counter" if family.is_counter else "gauge"
        yield row(family.name, family.labels, kind, family.text)


def test_every_metric_is_documented() -> None:
    assert set(rows()) - set(PAGE.read_text().splitlines()) == set()


def test_every_registered_name_is_documented() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    page = PAGE.read_text()
    names = {metric.name.removeprefix("croupier_") for metric in registry.collect()}
    assert {name for name in names if f"`{name}" not in page} == set()


def test_help_texts_are_sentences() -> None:
    for text in [each.text for each in FACT_COUNTERS] + [each.text for each in FAMILIES]:
        assert text[0].isupper() or text[0].isdigit(), text
        assert text.endswith("."), text


def test_every_fact_has_a_log_event() -> None:
    assert set(EVENTS) == set(get_args(Fact))
    assert len({name for name, _ in EVENTS.values()}) == len(EVENTS)
