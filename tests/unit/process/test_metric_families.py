"""Metrics from tables: one value, values by label, and none."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from croupier.process.metric_families import Family, FamilyCollector, Reading, exported_amount


def scrape(reading: Reading, labels: tuple[str, ...] = (), *, is_counter: bool = False) -> str:
    registry = CollectorRegistry()
    family: Family[None] = Family("x", "An x.", lambda _: reading, labels, is_counter)
    registry.register(FamilyCollector([family], lambda: None))
    assert not generate_latest(registry)
    sourced: Family[int] = Family("x", "An x.", lambda _: reading, labels, is_counter)
    registry = CollectorRegistry()
    registry.register(FamilyCollector([sourced], lambda: 1))
    return generate_latest(registry).decode()


@pytest.mark.parametrize(
    ("reading", "labels", "line"),
    [
        (3, (), "croupier_x 3.0"),
        ({"a": 1, "b": 2}, ("state",), 'croupier_x{state="b"} 2.0'),
        ({("a", "b"): 0.5}, ("one", "two"), 'croupier_x{one="a",two="b"} 0.5'),
    ],
)
def test_reading_becomes_samples(reading: Reading, labels: tuple[str, ...], line: str) -> None:
    lines = scrape(reading, labels).splitlines()
    assert lines[:2] == ["# HELP croupier_x An x.", "# TYPE croupier_x gauge"]
    assert line in lines
    assert "croupier_x_total" not in lines


def test_counter_has_the_suffix_total() -> None:
    assert "croupier_x_total 3.0" in scrape(3, is_counter=True).splitlines()


def test_no_reading_is_no_sample() -> None:
    assert scrape(None) == ""


def test_memory_and_disk_are_exported_in_bytes() -> None:
    assert exported_amount("mem", 1_000) == 1024 * 1024
    assert exported_amount("cpus", 1_500) == 1.5
