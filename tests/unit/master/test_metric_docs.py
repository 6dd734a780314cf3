"""Every metric of the master is in the documentation, with its labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from croupier.master import gauges
from croupier.master.metrics import FACT_COUNTERS
from croupier.process.metric_families import Family

ROOT = Path(__file__).parents[3]


def documented() -> set[str]:
    pages = [ROOT / "master/README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("master/docs/*.md")]
    return {
        name
        for page in pages
        for name in re.findall(r"`(?:croupier_)?([a-z_]+(?:\{[a-z_,]+\})?)`", page.read_text())
    }


FAMILIES: list[Family[Any]] = [*gauges.LEADERSHIP, *gauges.TERM, *gauges.STATE]


def exported() -> Iterator[str]:
    for counter in FACT_COUNTERS:
        yield with_labels(f"{counter.name}_total", counter.labels)
    for family in FAMILIES:
        name = f"{family.name}_total" if family.is_counter else family.name
        yield with_labels(name, family.labels)


def with_labels(name: str, labels: tuple[str, ...]) -> str:
    return f"{name}{{{','.join(labels)}}}" if labels else name


def test_every_metric_is_documented_with_its_labels() -> None:
    assert set(exported()) - documented() == set()


def test_help_texts_are_sentences() -> None:
    texts = [each.text for each in FACT_COUNTERS] + [each.text for each in FAMILIES]
    for text in texts:
        assert text[0].isupper() or text[0].isdigit(), text
        assert text.endswith("."), text
