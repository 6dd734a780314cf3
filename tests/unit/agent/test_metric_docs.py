"""docs/metrics.md lists every metric of the agent with its labels, type and HELP text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from croupier.agent.gauges import FAMILIES
from croupier.agent.metrics import COUNTERS, HISTOGRAMS
from croupier.process.metric_families import Family
from croupier.process.process_metrics import PROCESS
from croupier.process.tls.renewal import TLS

PAGE = Path(__file__).parents[3] / "docs/metrics.md"


def entries() -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    for name, (text, labels) in COUNTERS.items():
        yield f"{name}_total", labels, "counter", text
    for name, text in HISTOGRAMS.items():
        yield f"{name}_seconds", (), "histogram", text
    families: list[Family[Any]] = [*FAMILIES, *TLS, *PROCESS]
    for family in families:
        kind, suffix = ("counter", "_total") if family.is_counter else ("gauge", "")
        yield family.name + suffix, family.labels, kind, family.text


def rows() -> Iterator[str]:
    for name, labels, kind, text in entries():
        labelled = f"{{{','.join(labels)}}}" if labels else ""
        yield f"| `{name}{labelled}` | {kind} | {text} |"


def test_every_metric_is_documented() -> None:
    assert set(rows()) - set(PAGE.read_text().splitlines()) == set()


def test_help_texts_are_sentences() -> None:
    for _, _, _, text in entries():
        assert text[0].isupper() or text[0].isdigit(), text
        assert text.endswith("."), text
