"""A real Prometheus, unpacked from Debian's package, on a free port."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from croupier.net.address import Address
from croupier.net.transport import free_addresses
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.promql import RULES

INTERVAL = "300ms"
READY_S = 30.0
_RANGE = re.compile(r"\[\d+[smhd]\]")


@dataclass(frozen=True, slots=True)
class Haste:
    """How the times of rules are shortened, so that a test need not wait for them.

    No rule waits for its `for`. The expressions keep their shape.

    Attributes:
        ranges: replaces each range in an expression, such as `[5m]`; empty for none.
        range_of: the same for single rules, by name.
        limits: the limit of an alert and the one that replaces it, by name.
    """

    ranges: str = ""
    range_of: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def rules(self, name: str) -> Any:
        """Return a file of our rules with shortened times."""
        content = yaml.safe_load((RULES / name).read_text())
        for group in content["groups"]:
            group.pop("interval", None)
            for rule in group["rules"]:
                rule.pop("for", None)
                rule["expr"] = self._expr(rule.get("alert") or rule["record"], rule["expr"])
        return content

    def _expr(self, name: str, expr: str) -> str:
        if name in self.limits:
            usual, short = self.limits[name]
            assert expr.count(usual) == 1, f"{name}: {expr}"
            expr = expr.replace(usual, short)
        shorter = self.range_of.get(name, self.ranges)
        return _RANGE.sub(f"[{shorter}]", expr) if shorter else expr


def scrape(job: str, *targets: Address, **settings: Any) -> dict[str, Any]:
    """Return the configuration of a job; `settings` are more of its lines.

    A `cluster` among the settings becomes a label of the targets.
    """
    labels = {"cluster": settings.pop("cluster")} if "cluster" in settings else {}
    static = {"targets": [str(target) for target in targets], "labels": labels}
    return {"job_name": job, "static_configs": [static], **settings}


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: Address, session: aiohttp.ClientSession) -> None:
        self._url, self._session = f"http://{address}", session

    async def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def values(self, expr: str) -> list[float]:
        """Return the present values of an expression that are numbers.

        Raises:
            AssertionError: if Prometheus refuses the expression.
        """
        data = await self._get("query", query=expr)
        found = [float(each["value"][1]) for each in data["result"]]
        return [value for value in found if not isnan(value)]

    async def has_scraped(self, targets: int) -> bool:
        """Whether it has scraped so many targets; later changes have rates then."""
        return await self.values("count(up == 1)") == [targets]

    async def unhealthy(self) -> dict[str, str]:
        """Return the last error of each target that it could not scrape, or has not scraped."""
        targets = (await self._get("targets"))["activeTargets"]
        return {each["scrapeUrl"]: each["lastError"] for each in targets if each["health"] != "up"}

    async def rule_errors(self) -> dict[str, str]:
        """Return the last error of each rule that failed, or was not evaluated yet."""
        groups = (await self._get("rules"))["groups"]
        every = (rule for group in groups for rule in group["rules"])
        return {each["name"]: each.get("lastError", "") for each in every if each["health"] != "ok"}

    async def firing(self, cluster: str | None = None) -> set[str]:
        """Return the names of the alerts that fire, by default for any cluster."""
        labels = await self.alerts()
        return {each["alertname"] for each in labels if cluster in (None, each.get("cluster", ""))}

    async def alerts(self) -> list[dict[str, str]]:
        """Return the labels of each alert that fires."""
        alerts = (await self._get("alerts"))["alerts"]
        return [each["labels"] for each in alerts if each["state"] == "firing"]

    async def _get(self, path: str, **params: str) -> Any:
        async with self._session.get(f"{self._url}/api/v1/{path}", params=params) as answer:
            body = await answer.json()
        assert body["status"] == "success", f"{params}: {body}"
        return body["data"]


@asynccontextmanager
async def running_prometheus(
    directory: Path,
    jobs: Sequence[Mapping[str, Any]],
    haste: Haste | None = None,
    interval: str = INTERVAL,
) -> AsyncIterator[Prometheus]:
    """Run Prometheus with our rules, which fire at once, and end it.

    Arguments:
        directory: takes its files.
        jobs: its configurations of scrapes; see `scrape`.
        haste: how times are shortened; by default only those that rules wait before they fire.
        interval: of scrapes and evaluations.
    """
    for name in ("recording.yml", "alerts.yml"):
        (directory / name).write_text(json.dumps((haste or Haste()).rules(name)))
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["recording.yml", "alerts.yml"],
        "scrape_configs": jobs,
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    (address,) = free_addresses(1)
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(program("prometheus", "prometheus")),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            prometheus = Prometheus(address, session)
            await eventually(prometheus.is_ready, READY_S)
            yield prometheus
    finally:
        process.kill()
        process.wait(10)
