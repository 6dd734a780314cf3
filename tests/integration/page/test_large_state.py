"""The web page of a real master with 10,000 agents, thousands of tasks, frameworks and offers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.page.large_master import FRAMEWORKS, large_master
from tests.integration.page.visitor import Visitor

pytestmark = pytest.mark.timeout(300)  # The first test may have to fetch the browser.

MOST_BYTES = 300_000
# What is in the document is painted a moment later.
FIRST_PAINT = """() => new Promise((seen) => {
    const painted = (list) => list.getEntriesByName('first-contentful-paint').length && seen(true);
    new PerformanceObserver(painted).observe({ type: 'paint', buffered: true });
})"""
API = "**/api/v1/**"
# Of the document too.
TRANSFERRED = (
    "['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))"
    ".map(entry => entry.transferSize)"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with large_master() as url:
        yield url


def test_the_first_paint_waits_for_no_answer_and_is_small(browser: Browser, url: str) -> None:
    """The overview is loaded with 300 KB, and its map has all agents."""
    with Visitor.of(browser, url) as visitor:
        # Requests are held until the route is removed.
        visitor.page.route(API, lambda _: None)
        visitor.page.goto(f"{url}/#/overview")
        visitor.one("nav a").last.wait_for()
        assert visitor.page.evaluate(FIRST_PAINT)
        visitor.page.unroute(API)
        visitor.sees("10,000 agents: 9,998 connected")
        sizes = visitor.page.evaluate(TRANSFERRED)
        assert 10_000 < sum(sizes) < MOST_BYTES, sizes
        visitor.one(".link.live").wait_for()
        assert visitor.faults == []


def test_every_view_shows_its_part_of_it(browser: Browser, url: str) -> None:
    with Visitor.of(browser, url) as visitor:
        page, rows = visitor.page, visitor.one("tbody tr")
        visitor.go("agents")
        expect(rows).to_have_count(100)
        page.get_by_role("button", name="Next").click()
        visitor.sees("agent-00150")
        visitor.go("agents", query="?text=node9999")
        visitor.one("tbody tr:only-child").wait_for()
        visitor.go("agents", "agent-00001")
        page.get_by_text("64 attributes").click()
        visitor.sees("attribute63")
        visitor.go("tasks", query="?state=FAILED")
        visitor.one("tbody").get_by_text("FAILED").first.wait_for()
        visitor.one("tbody tr").nth(99).wait_for()
        visitor.go("tasks")
        expect(rows).to_have_count(100)
        visitor.go("frameworks")
        expect(rows).to_have_count(FRAMEWORKS)
        page.locator("tbody a.id").first.click()
        visitor.sees("Why it gets no more")
        visitor.go("offers")
        rows.nth(FRAMEWORKS // 4 - 1).wait_for()
        visitor.go("events")
        visitor.one(".events li").nth(19).wait_for()
        for view, text in (("roles", "prod"), ("masters", "leads")):
            visitor.go(view)
            visitor.sees(text)
        expect(visitor.one(".failure")).to_have_count(0)
        assert visitor.faults == []
