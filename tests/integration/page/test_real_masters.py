"""The web page of real masters, of one with agents and tasks and of two on a real etcd."""

from __future__ import annotations

import json
import os
import re
import signal
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

CROUPIER = (sys.executable, "-m", "croupier.ctl")
START_S = 90.0


@dataclass
class RealCluster:
    """A running cluster.

    Attributes:
        master: HOST:PORT of the gRPC of the master.
        url: of its page.
        token: signs in to the page.
        env: of commands; their home holds the credentials.
    """

    process: subprocess.Popen[bytes]
    master: str
    url: str
    token: str
    env: dict[str, str]

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run `croupier run ARGUMENTS`; kill it at the end."""
        argv = (*CROUPIER, "run", "--master", self.master, *command)
        run = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.env
        )
        try:
            yield run
        finally:
            run.kill()
            run.wait(10)

    def kill_master(self) -> None:
        """Kill the master by SIGKILL; `croupier local` starts it again on the same ports."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in map(int, children.split()):
            if b"croupier.master" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                return
        raise AssertionError("there is no master")


@contextmanager
def real_cluster(directory: Path, agents: int = 3) -> Iterator[RealCluster]:
    """Run a cluster until the end of the block."""
    log = directory / "local.log"
    flags = ("--master-port", "0", "--http-port", "0", "--isolation", "none")
    sizes = ("--agents", str(agents), "--cpus", "4", "--mem", "2GB", "--disk", "4GB")
    argv = (*CROUPIER, "local", *flags, *sizes)
    env = environment(PYTHONUNBUFFERED="1", HOME=str(directory))
    env.pop("XDG_CONFIG_HOME", None)
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        text = _ready(process, log)
        master = re.search(r"master +(\S+:\d+)", text)
        url = re.search(r"(https?://[^/\s]+)", text)
        assert master, text
        assert url, text
        show = (*CROUPIER, "page", "--show-token", "--master", master[1])
        token = subprocess.run(
            show, env=env, capture_output=True, text=True, check=True, timeout=60
        )
        yield RealCluster(process, master[1], url[1], token.stdout.strip(), env)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        finally:
            process.kill()


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while "Ctrl-C ends" not in (text := log.read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
    return text


pytestmark = pytest.mark.timeout(300)  # The first test may have to fetch the browser.

VIEWS = ("overview", "roles", "frameworks", "tasks", "agents", "offers", "preemptions", "events")
SCRIPT = "printf 'hello <b>\\033[31mred\\033[0m\\n'; exec sleep 600"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with real_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@contextmanager
def signed_in(browser: Browser, cluster: RealCluster) -> Iterator[Visitor]:
    with Visitor.of(browser, cluster.url) as visitor:
        visitor.sign_in(cluster.token)
        # Chromium reports the refusal that asked for the token.
        assert all("401" in fault for fault in visitor.faults)
        visitor.faults.clear()
        yield visitor


def test_tasks_come_and_go(browser: Browser, cluster: RealCluster) -> None:
    with signed_in(browser, cluster) as visitor:
        page = visitor.page
        visitor.go("overview")
        visitor.sees("3 agents: 3 connected")
        visitor.one(".link.live").wait_for()
        with cluster.running("--role", "ads/prod", "--cpus", "1", "--", "sh", "-c", SCRIPT):
            # Without a reload: the number of running tasks, and the event.
            visitor.sees("1 RUNNING")
            for view in (*VIEWS, "masters"):
                visitor.go(view)
                assert page.locator("main .card").count(), view
                assert page.locator(".failure").count() == 0, view
            assert visitor.barriers() == []

            visitor.go("frameworks")
            page.locator("tbody a.id").first.click()
            visitor.sees("Why it gets no more")
            page.locator("tbody a.id").last.wait_for()
            visitor.go("tasks", query="?state=RUNNING")
            page.locator("tbody a.id").first.click()
            visitor.sees("hello <b>red")
            page.get_by_role("button", name="List the files").click()
            visitor.sees("stderr")
            page.get_by_role("button", name="Kill").click()
            page.get_by_role("button", name="Show what it does").click()
            visitor.sees("its processes end")
            page.get_by_role("dialog").get_by_role("button", name="Kill").click()
            visitor.sees("KILLED")
        assert visitor.faults == []


def test_weights_and_drains(browser: Browser, cluster: RealCluster) -> None:
    with (
        signed_in(browser, cluster) as visitor,
        cluster.running("--role", "web", "--cpus", "4", "-n", "3", "--", "sleep", "600"),
    ):
        page = visitor.page
        visitor.go("roles")
        page.get_by_role("button", name="Change the weight of web").click()
        page.get_by_label("Weight").last.fill("3")
        page.keyboard.press("Enter")
        visitor.sees("1 → 3")
        page.get_by_role("dialog").get_by_role("button", name="Change").click()
        visitor.sees("Role web is changed.")

        visitor.go("agents")
        page.locator("tbody a.id").first.click()
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("button", name="Show what it does").click()
        visitor.sees("1 task ends with its grace")
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        visitor.sees("It is drained")
        assert visitor.faults == []


def test_a_failover_keeps_the_page_going(browser: Browser, cluster: RealCluster) -> None:
    with signed_in(browser, cluster) as visitor:
        visitor.go("overview")
        visitor.sees("3 agents")
        visitor.one(".link.live").wait_for()
        visitor.sees("term 1")
        cluster.kill_master()
        visitor.sees("term 2")
        visitor.one(".link.live").wait_for()
        assert visitor.page.url.endswith("#/overview")


PATIENCE_S = 60.0


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
    flags = (f"--listen={listen}", f"--http={http}", f"--store={etcd.target()}", "--lease=5s")
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
        with visitor.staying(leader.url):
            visitor.page.goto(f"{follower.url}/#/events")
            visitor.sees(f"{leader.url} leads")
            visitor.one("tbody").get_by_text(leader.url).wait_for()
            visitor.page.get_by_role("link", name="Go there").click()
        visitor.page.wait_for_url(f"{leader.url}/#/events", wait_until="commit")
        visitor.one(".link.live").wait_for()
        visitor.sees("began to lead")
        seen = visitor.one(".events").inner_text()

        # On a leader that dies: the next master, with the events of its term, at the same place.
        with visitor.staying(follower.url, answers=1):
            leader.kill()
            visitor.sees(f"{follower.url} does")
            visitor.page.get_by_role("link", name="Go there").click()
        visitor.page.wait_for_url(f"{follower.url}/#/events", wait_until="commit")
        visitor.one(".link.live").wait_for()
        visitor.sees("began to lead")
        assert visitor.one(".events").inner_text() != seen
        visitor.go("masters")
        visitor.sees("so many masters have led this cluster")
        hosts = {url.split("/", 3)[2] for url in visitor.requests if url.startswith("http")}
        assert hosts <= {master.url.removeprefix("http://") for master in (leader, follower)}
