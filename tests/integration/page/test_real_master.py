"""The web page of a real master with real agents and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser

from tests.integration.page.real_cluster import RealCluster, real_cluster
from tests.integration.page.visitor import Visitor

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
        before = visitor.one(".counts").inner_text()
        assert "term 1" in before
        cluster.kill_master()
        visitor.one(".link.reconnecting").wait_for()
        visitor.one(".link.live").wait_for()
        visitor.sees("term 2")
        assert visitor.page.url.endswith("#/overview")
