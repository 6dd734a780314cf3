"""A visitor of the page: a tab of its own, and what a person would complain of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, expect

# Milliseconds for what takes a moment, on a machine that is busy with other tests.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
GRAVE = ("serious", "critical")
# Change the route, and wait until the page has seen it: its listener is older than this one.
GO = """route => new Promise((seen) => {
    const before = location.href;
    addEventListener("hashchange", seen, { once: true });
    location.hash = route;
    if (location.href === before) seen();
})"""


@dataclass
class Visitor:
    """A tab.

    Attributes:
        url: of the page.
        faults: messages of the console that are errors, exceptions, dialogs, and requests to
            other places than `url`.
        requests: addresses of all requests.
    """

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(
        cls, browser: Browser, url: str, *, scheme: str = "light", width: int = 1280
    ) -> Iterator[Visitor]:
        """Open a tab; the faults are the test's to look at."""
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            ignore_https_errors=True,
        )
        context.set_default_timeout(PATIENCE_MS)
        visitor = cls(context.new_page(), url)
        visitor._listen()
        try:
            yield visitor
        finally:
            context.close()

    def _listen(self) -> None:
        page, faults = self.page, self.faults
        page.on("console", self._told)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        page.on("request", lambda request: self._requested(request.url))

    def _told(self, told: ConsoleMessage) -> None:
        if told.type == "error":
            self.faults.append(f"{told.text} {told.location}")

    def _requested(self, url: str) -> None:
        self.requests.append(url)
        if not url.startswith((f"{self.url}/", "data:", f"blob:{self.url}")):
            self.faults.append(f"a request to {url}")

    def go(self, *parts: str, query: str = "") -> None:
        """Show the view of a route, and wait for it."""
        route = "#/" + "/".join(quote(part, safe="") for part in parts) + query
        if self.page.url.startswith(f"{self.url}/"):
            self.page.evaluate(GO, route)
        else:
            self.page.goto(f"{self.url}/{route}")
        self.settled()

    def sign_in(self, token: str) -> None:
        """Open the page and sign in."""
        self.page.goto(self.url)
        field = self.page.get_by_label("Token")
        field.fill(token)
        field.press("Enter")
        field.wait_for(state="detached")

    def settled(self) -> None:
        """Wait until the view is loaded."""
        self.page.locator("main:not([aria-busy])").wait_for()

    @contextmanager
    def staying(self, other: str, answers: int = 0) -> Iterator[None]:
        """Keep the page from going to another master until the end of the block.

        The other master gives so many answers to the page, and then none.
        """
        probe, answered = f"{other}/healthz", []

        def on_finished(request: Request) -> None:
            if request.url == probe:
                answered.append(request)

        def on_probe(route: Route) -> None:
            if len(answered) < answers:
                route.continue_()
            else:
                route.abort()

        self.page.on("requestfinished", on_finished)
        self.page.route(probe, on_probe)
        yield
        self.page.unroute(probe)

    def sees(self, text: str) -> None:
        """Wait until a text is visible."""
        self.page.get_by_text(text).first.wait_for()

    def one(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def focused(self) -> str:
        """Return the text, the label or the placeholder of what has the focus."""
        script = (
            "() => { const it = document.activeElement;"
            " return it.getAttribute('aria-label') || it.textContent || it.id; }"
        )
        return str(self.page.evaluate(script)).strip()

    def barriers(self, *rules: str) -> list[str]:
        """Return the serious and critical faults that axe finds in the view, by all its rules."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(Axe().axe_script)
        only = {"runOnly": list(rules)} if rules else {}
        script = "options => axe.run(options).then((found) => found.violations)"
        found = self.page.evaluate(script, {"resultTypes": ["violations"], **only})
        return [
            f"{self.page.url}: {each['id']}: {each['nodes'][0]['html'][:300]}"
            for each in found
            if each["impact"] in GRAVE
        ]
