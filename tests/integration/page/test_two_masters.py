"""The web page of two real masters on a real etcd: who leads, and what follows when that dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from croupier.net.transport import free_addresses
from tests.harness.command import environment
from tests.harness.etcd import Etcd, running_etcd
from tests.integration.page.visitor import Visitor

pytestmark = pytest.mark.timeout(300)  # The first test may have to fetch the browser.

PATIENCE_S = 30.0


@dataclass
class RealMaster:
    """A master in a process of its own; `url` is that of its page."""

    process: subprocess.Popen[bytes]
    url: str

    def get(self, path: str) -> str:
        """Return the body of an answer, also of an error; empty if there is none."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""

    def wait(self, path: str, text: str) -> None:
        """Wait until an answer has `text`."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in (found := self.get(path)):
            assert self.process.poll() is None
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it by SIGKILL."""
        self.process.kill()
        self.process.wait(10)


@contextmanager
def running_master(etcd: Etcd, log: Path) -> Iterator[RealMaster]:
    listen, http = free_addresses(2)
    flags = (f"--listen={listen}", f"--http={http}", f"--store={etcd.target()}", "--lease=2s")
    argv = (sys.executable, "-m", "croupier.master", *flags)
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, env=environment())
    master = RealMaster(process, f"http://{http}")
    try:
        yield master
    finally:
        master.kill()


def test_the_page_goes_where_the_leader_is(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(tmp_path / "etcd"))
        leader = stack.enter_context(running_master(etcd, tmp_path / "leader.log"))
        leader.wait("/readyz", "ready")
        follower = stack.enter_context(running_master(etcd, tmp_path / "follower.log"))
        for master, other in ((leader, follower), (follower, leader)):
            master.wait("/api/v1/masters", json.dumps(other.url))

        # On a follower: who leads, both masters, and on to the leader.
        visitor = stack.enter_context(Visitor.of(browser, follower.url))
        visitor.page.goto(f"{follower.url}/#/events")
        visitor.sees(f"{leader.url} leads")
        visitor.one("tbody").get_by_text(leader.url).wait_for()
        visitor.page.get_by_role("link", name="Go there").click()
        visitor.page.wait_for_url(f"{leader.url}/#/events")
        visitor.one(".link.live").wait_for()
        visitor.sees("began to lead")
        seen = visitor.one(".events").inner_text()

        # On a leader that dies: the next master, with the events of its term, at the same place.
        leader.kill()
        visitor.sees(f"{follower.url} does")
        visitor.page.get_by_role("link", name="Go there").click()
        visitor.page.wait_for_url(f"{follower.url}/#/events")
        visitor.one(".link.live").wait_for()
        visitor.sees("began to lead")
        assert visitor.one(".events").inner_text() != seen
        visitor.go("masters")
        visitor.sees("so many masters have led this cluster")
        hosts = {url.split("/", 3)[2] for url in visitor.requests if url.startswith("http")}
        assert hosts <= {master.url.removeprefix("http://") for master in (leader, follower)}
