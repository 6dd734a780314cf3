"""The web page in a real browser, against an API of made-up objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from croupier.net.transport import free_addresses
from tests.integration.page.cluster import HOSTILE, Cluster
from tests.integration.page.fake_api import OUTPUT_BYTES, TOKEN, FakeApi
from tests.integration.page.visitor import Visitor

pytestmark = pytest.mark.timeout(300)  # The first test may have to fetch the browser.

VIEWS = (
    ("overview",),
    ("roles",),
    ("frameworks",),
    ("frameworks", "f-1"),
    ("tasks",),
    ("tasks", "f-0", "t-0"),
    ("agents",),
    ("agents", "agent-00001"),
    ("offers",),
    ("holds",),
    ("reservations",),
    ("fit",),
    ("usage",),
    ("preemptions",),
    ("events",),
    ("masters",),
)


# Rules of axe; none: all. In the dark only what depends on colours and width differs.
OF_LOOKS = ("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size")


@pytest.mark.parametrize(
    ("scheme", "width", "rules"),
    [("light", 1280, ()), ("dark", 360, OF_LOOKS)],
    ids=["light", "dark"],
)
def test_views_load_and_are_accessible(
    browser: Browser,
    hostile_api: FakeApi,
    scheme: str,
    width: int,
    rules: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """With hostile names everywhere: none is executed, none breaks a table."""
    with Visitor.of(browser, hostile_api.url, scheme=scheme, width=width) as visitor:
        page = visitor.page
        barriers = []
        for view in VIEWS:
            parts = [part + HOSTILE if part.startswith("agent-") else part for part in view]
            visitor.go(*parts)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            assert page.locator("main .card").count(), view
            barriers += visitor.barriers(*rules)
            page.screenshot(path=tmp_path / f"{scheme}-{'-'.join(view)}.png")
        assert barriers == []
        assert page.evaluate("window.hacked === undefined")
        assert page.locator("main script, main img, main iframe, [onerror]").count() == 0
        assert page.locator("a[href^='javascript:']").count() == 0
        assert visitor.faults == []
    assert all(path.stat().st_size for path in tmp_path.iterdir())


def test_the_page_is_live(visitor: Visitor, api: FakeApi) -> None:
    visitor.go("overview")
    visitor.one(".link.live").wait_for()
    api.happen("agent-lost")
    visitor.sees("agent lost: number 25")
    api.tell("overview", {**api.cluster.overview(), "epoch": 8, "tasks": {"RUNNING": 4321}})
    visitor.sees("4,321 RUNNING")

    visitor.go("agents", "agent-00000")
    api.cluster.agents[0]["hostname"] = "renamed.example.org"
    api.happen("agent-changed", agent=0)
    visitor.sees("Agent renamed.example.org")

    api.tell("reset", {}, "9-1")
    visitor.go("events")
    api.happen("task-lost")
    visitor.sees("task lost: number 27")
    assert visitor.faults == []


def test_it_reconnects_and_keeps_the_place(visitor: Visitor, api: FakeApi) -> None:
    visitor.go("tasks", query="?text=shard%201")
    visitor.one(".link.live").wait_for()
    with api.cut():
        visitor.one(".link.reconnecting").wait_for()
    visitor.one(".link.live").wait_for()
    api.cluster.tasks[1]["name"] = "shard 1 after the failover"
    api.happen("task-finished")
    visitor.sees("shard 1 after the failover")
    assert visitor.page.url.endswith("#/tasks?text=shard%201")
    assert visitor.faults == []


def test_events_that_come_while_their_list_is_asked_for_stay(
    visitor: Visitor, api: FakeApi
) -> None:
    with api.holding_events():
        visitor.page.goto(f"{visitor.url}/#/events")
        visitor.one(".link.live").wait_for()
        assert api.asked.wait(10)
        api.happen("task-lost")
        visitor.sees("task lost: number 25")
    # The stream has told the last 20 before.
    expect(visitor.one(".events li")).to_have_count(25)
    assert "task lost: number 25" in visitor.one(".events").inner_text()


def test_a_follower_says_who_leads_and_goes_there(visitor: Visitor, api: FakeApi) -> None:
    with FakeApi(Cluster(5)).running() as leader:
        api.others = leader.url
        visitor.go("agents")
        visitor.one(".link.live").wait_for()
        with visitor.staying(leader.url):
            api.leader = leader.url
            with api.cut():
                visitor.sees(f"{leader.url} leads")
        visitor.page.wait_for_url(f"{leader.url}/#/agents")
        visitor.one(".link.live").wait_for()
        visitor.one("tbody tr").nth(4).wait_for()


def test_it_stays_while_the_leader_does_not_answer(visitor: Visitor, api: FakeApi) -> None:
    """A leader that died is named until its lease ends."""
    dead = f"http://{free_addresses(1)[0]}"
    api.leader = api.others = dead
    failed = visitor.page.expect_event(
        "requestfailed", lambda request: request.url.startswith(dead)
    )
    with failed as probe:
        visitor.page.goto(f"{visitor.url}/#/events")
        visitor.sees(f"{dead} leads")
    assert probe.value.url == f"{dead}/healthz"
    api.leader = ""
    visitor.one(".link.live").wait_for()
    visitor.sees("preemption begun: number 23")
    assert visitor.page.url == f"{visitor.url}/#/events"
    expect(visitor.one("#banner")).to_be_hidden()


def test_signing_in_at_a_follower_goes_to_the_leader(visitor: Visitor, api: FakeApi) -> None:
    with FakeApi(Cluster(5)).running() as leader:
        api.needs_token, api.leader, api.others = True, leader.url, leader.url
        visitor.page.goto(f"{visitor.url}/#/agents")
        field = visitor.page.get_by_label("Token")
        field.fill(TOKEN)
        with visitor.staying(leader.url):
            field.press("Enter")
            visitor.sees("Sign in at the one that leads")
            visitor.sees(f"{leader.url} leads")
            visitor.page.get_by_role("link", name="Go there").wait_for()
        visitor.page.wait_for_url(f"{leader.url}/#/agents")


def test_a_restricted_person_reads_what_is_true(browser: Browser) -> None:
    api = FakeApi(Cluster(1))
    api.cluster.size = 0
    api.cluster.agents.clear()
    api.cluster.frameworks.clear()
    api.identity = {"may": ["view"], "views_all": []}
    with api.running(), Visitor.of(browser, api.url) as visitor:
        visitor.go("overview")
        visitor.sees("You may not view the totals of the cluster.")
        visitor.sees("No agents that you may view.")
        visitor.go("agents")
        visitor.sees("No agents that you may view are registered.")
        visitor.go("frameworks")
        visitor.sees("No frameworks that you may view are registered.")


def test_the_leader_names_itself(visitor: Visitor, api: FakeApi) -> None:
    api.cluster.epoch = 1
    visitor.go("masters")
    facts = visitor.one(".facts").inner_text().split("\n")
    assert facts[facts.index("Address of the leader") + 1] == "10.0.0.1:5050"
    visitor.sees("1: no other master has led this cluster")


def test_signing_in_and_out(visitor: Visitor, api: FakeApi) -> None:
    api.needs_token = True
    visitor.page.goto(f"{visitor.url}/#/agents/agent-00002")
    field = visitor.page.get_by_label("Token")
    field.fill("crp_1_wrong")
    field.press("Enter")
    visitor.sees("the token is not known")
    assert visitor.barriers() == []
    field.fill(TOKEN)
    field.press("Enter")
    visitor.sees("node2.example.org")
    visitor.sees("alice")
    visitor.one(".link.live").wait_for()

    visitor.page.reload()
    visitor.sees("node2.example.org")
    assert visitor.page.evaluate("localStorage.length + document.cookie.length") == 0
    assert not [url for url in visitor.requests if TOKEN in url]
    visitor.page.get_by_role("button", name="Sign out").click()
    visitor.sees("You are signed out.")
    assert visitor.page.evaluate("sessionStorage.length") == 0
    visitor.sign_in(TOKEN)
    visitor.sees("3 agents: 1 connected")


def test_an_agent_shows_its_devices_with_their_tasks(visitor: Visitor) -> None:
    visitor.go("agents", "agent-00001")
    rows = visitor.page.get_by_role("region", name="Devices of the agent").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("GPU-0")
    expect(rows.first).to_contain_text("t-1 0.25")
    expect(rows.last).not_to_contain_text("t-1")


def test_actions_show_their_dry_run_first(visitor: Visitor, api: FakeApi) -> None:
    page = visitor.page
    visitor.go("agents", "agent-00000")
    page.get_by_role("button", name="Deactivate").click()
    visitor.sees("it gets no offers until it is reactivated")
    assert visitor.barriers() == []
    assert api.posted == [("agents/agent-00000/deactivate", {"dry_run": True})]
    page.get_by_role("dialog").get_by_role("button", name="Deactivate").click()
    visitor.sees("Agent node0.example.org is deactivated.")
    assert api.posted[1:] == [("agents/agent-00000/deactivate", {"dry_run": False})]
    page.get_by_role("button", name="Reactivate").wait_for()

    page.get_by_role("button", name="Drain").click()
    page.get_by_label("Longest grace of a task").fill("30s")
    accept = page.get_by_role("dialog").get_by_role("button", name="Drain")
    assert accept.is_disabled()
    page.get_by_role("button", name="Show what it does").click()
    visitor.sees("12 tasks end, each with its grace: 12 of web-1")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Drain")).to_be_focused()
    asked = {"dry_run": True, "grace": "30s"}
    assert api.posted[2:] == [("agents/agent-00000/drain", asked)]

    page.get_by_role("button", name="Declare gone").click()
    visitor.sees("2 holds end")
    visitor.sees("1 volume and the files in it are lost")
    page.keyboard.press("Escape")

    visitor.go("roles")
    visitor.sees("counts \u00d70.66")
    page.get_by_role("button", name="Change the weight of ads/prod").click()
    page.get_by_label("Weight").last.fill("5")
    page.keyboard.press("Enter")
    visitor.sees("2 → 5")
    visitor.sees("12 % → 20 %")
    assert visitor.faults == []


def test_without_permission_there_are_no_actions(visitor: Visitor, api: FakeApi) -> None:
    api.identity["may"] = []
    for view in (("agents", "agent-00000"), ("tasks", "f-0", "t-0"), ("frameworks", "f-1")):
        visitor.go(*view)
        named = ("Drain", "Deactivate", "Declare gone", "Kill", "Tear down")
        for name in named:
            assert visitor.page.get_by_role("button", name=name).count() == 0
    visitor.go("roles")
    assert visitor.page.get_by_role("button", name="Change the").count() == 0


def test_the_room_for_tasks_is_counted(visitor: Visitor, api: FakeApi) -> None:
    visitor.go("fit")
    visitor.sees("7 tasks could start now.")
    visitor.page.get_by_label("Resources of one task").fill("cpus:8;gpus:1")
    visitor.page.get_by_label("Role").fill("ads")
    visitor.page.get_by_role("button", name="Count").click()
    visitor.sees("8 tasks could start now.")
    visitor.sees("without 1 offer and 2 tasks")
    assert visitor.page.url.endswith("unit=cpus%3A8%3Bgpus%3A1&role=ads")
    visitor.page.get_by_label("Resources of one task").fill("nothing")
    visitor.page.keyboard.press("Enter")
    visitor.sees("unit is no amount")
    assert not [fault for fault in visitor.faults if "400" not in fault]


def test_usage_of_a_month_is_shown(visitor: Visitor) -> None:
    visitor.go("usage")
    visitor.sees("Counted for 10 h")
    visitor.sees("12.5")
    visitor.sees("cpus 7.5")
    visitor.page.get_by_label("Sum by").select_option("label")
    visitor.sees("(none)")
    assert visitor.page.url.endswith("by=label")
    assert visitor.faults == []


def test_a_framework_shows_when_its_tasks_may_start(visitor: Visitor, api: FakeApi) -> None:
    visitor.go("frameworks", "f-1")
    visitor.sees("in about 4 min, and by 50 min in 9 of 10 rehearsals")
    visitor.sees("cannot be foretold: nobody knows")
    assert visitor.faults == []


def test_output_of_a_gigabyte_shows_its_tail(visitor: Visitor, api: FakeApi) -> None:
    visitor.go("tasks", "f-0", "t-0")
    visitor.sees("a line that follows")
    text = visitor.one(".output pre").inner_text()
    assert "ok <script>window.hacked=1</script>" in text
    assert not {"\x1b", "\x00", "\x07", "\u202e"} & set(text)
    assert text.rstrip().endswith("a line that follows")
    visitor.sees("the last 64 KB of 1 GB")
    assert api.output_sent < OUTPUT_BYTES / 1000
    visitor.page.get_by_role("button", name="List the files").click()
    visitor.sees("result<b>.bin")
    assert visitor.page.evaluate("window.hacked === undefined")
    assert visitor.faults == []


def test_failures_come_first(visitor: Visitor, api: FakeApi) -> None:
    visitor.go("overview")
    first = visitor.one("main .card").first.inner_text()
    assert first.startswith("2 failed tasks")
    for part in ("trainer-2", "node2.example.org", "signal 9", "CONTAINER_LIMITATION_MEMORY"):
        assert part in first
    visitor.page.get_by_role("link", name="stderr of t-2").click()
    visitor.one(".output [aria-pressed=true]").get_by_text("stdout").wait_for()
    headings = visitor.page.locator("main h2").all_inner_texts()
    assert headings == ["Task t-2", "Output", "Details", "Files of the sandbox"]
    api.stderr = b"Traceback: it broke\n"
    visitor.go("tasks", "f-7", "t-7")
    visitor.sees("Traceback: it broke")
    assert visitor.one(".output [aria-pressed=true]").inner_text() == "stderr"
    assert visitor.faults == []


def test_a_live_task_shows_its_limits_and_use(visitor: Visitor) -> None:
    visitor.go("tasks", "f-0", "t-0")
    table = visitor.one("table.narrow").inner_text()
    for part in ("Used so far", "512 MB", "49.6 MB at most", "4,096", "3 at most"):
        assert part in table


def test_lists_are_sorted_by_a_click_on_a_head(visitor: Visitor, api: FakeApi) -> None:
    page = visitor.page
    for number, name in enumerate(("node10.example.org", "node9.example.org", "node100")):
        api.cluster.agents[number]["hostname"] = name

    def hosts() -> list[str]:
        return page.locator("tbody a.id").all_inner_texts()

    visitor.go("agents")
    assert hosts() == ["node10.example.org", "node9.example.org", "node100"]
    head = page.get_by_role("button", name="Agent", exact=True)
    head.click()
    visitor.one("th[aria-sort=ascending]").wait_for()
    assert hosts() == ["node9.example.org", "node10.example.org", "node100"]
    head.click()
    visitor.one("th[aria-sort=descending]").wait_for()
    assert hosts() == ["node100", "node10.example.org", "node9.example.org"]
    assert page.url.endswith("sort=-Agent")
    page.reload()
    visitor.one("th[aria-sort=descending]").wait_for()
    page.get_by_role("button", name="Agent", exact=True).click()
    visitor.one("thead:not(:has([aria-sort]))").wait_for()
    assert hosts() == ["node10.example.org", "node9.example.org", "node100"]
    assert visitor.barriers() == []
    assert visitor.faults == []


def test_events_are_filtered_by_kind(visitor: Visitor, api: FakeApi) -> None:
    visitor.go("events")
    rows = visitor.one(".events li")
    expect(rows).to_have_count(24)
    visitor.page.get_by_label("Kind of events").select_option("problem")
    # Not `wait_for_function`: the page's policy forbids to evaluate text once more.
    expect(rows).to_have_count(12)
    api.happen("task-running")
    api.happen("task-lost")
    visitor.sees("task lost: number 26")
    expect(rows).to_have_count(13)
    assert visitor.page.url.endswith("?kind=problem")
    visitor.go("overview")
    visitor.sees("task lost: number 26")
    assert "task running" not in visitor.one(".events").inner_text()


def test_a_framework_that_suppressed_offers_shows_what_it_does(
    visitor: Visitor, api: FakeApi
) -> None:
    api.cluster.frameworks[1].update(suppressed=True, demands=[])
    visitor.go("frameworks")
    visitor.sees("38 done, 5 of them failed, 3 running, 212 queued")
    visitor.sees("nothing more")
    assert "suppress" not in visitor.one("main").inner_text()


def test_the_keyboard_reaches_everything(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("overview")
    visitor.sees("3 agents: 1 connected")
    page.keyboard.press("Tab")
    assert visitor.focused() == "Skip to the content"
    before = page.url
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url == before, "the place is kept"

    visitor.one("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    visitor.one(".map-summary").get_by_text("agent-00001").wait_for()
    visitor.one(".map-summary").get_by_text("(node1.example.org)").wait_for()
    page.keyboard.press("Enter")
    visitor.sees("What stands in its way")

    page.keyboard.type("gt")
    visitor.one("nav [aria-current]").get_by_text("Tasks").wait_for()
    visitor.settled()
    page.keyboard.press("/")
    assert visitor.focused() == "Search tasks"
    page.keyboard.type("shard 11")
    visitor.one("tbody tr:only-child").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert visitor.barriers() == []
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert visitor.faults == []


def test_text_that_hides_is_made_visible(visitor: Visitor) -> None:
    visitor.go("overview")
    script = """async () => {
        const text = await import('/web/js/text.js');
        const { Parser } = await import('/web/js/sse.js');
        const parser = new Parser();
        const pieces = [
            'id: 1-2\\r', '\\nevent: clu', 'ster\\ndata: a\\ndata:b\\n', '\\n: x\\n\\n',
        ];
        return {
            visible: text.visible('a\\u202eb\\u001bc\\n'),
            plain: text.plainOutput('\\u001b[1;31mred\\u001b[0m\\u001b]0;title\\u0007\\u0008 \\tx'),
            spans: [0, 0.25, 59.6, 61, 3600, 90061].map(text.span),
            sizes: [0, 1023, 1536, 2 ** 40].map(text.size),
            parts: [0, 0.004, 0.0666, 0.5, 1].map(text.percent),
            messages: pieces.flatMap((piece) => parser.push(piece)),
        };
    }"""
    assert visitor.page.evaluate(script) == {
        "visible": "a\u2039U+202E\u203ab\u2039U+001B\u203ac\u2039U+000A\u203a",
        "plain": "red· \tx",
        "spans": ["0 s", "0.3 s", "1 min", "1 min 1 s", "1 h", "1 d 1 h"],
        "sizes": ["0 B", "1,023 B", "1.5 KB", "1 TB"],
        "parts": ["0 %", "0.40 %", "6.7 %", "50 %", "100 %"],
        "messages": [{"type": "cluster", "data": "a\nb", "id": "1-2"}],
    }
