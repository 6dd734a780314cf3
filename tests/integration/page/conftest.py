"""One Chromium for the tests of a module, and a page that notes what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.harness.chromium import chromium
from tests.integration.page.cluster import HOSTILE, Cluster
from tests.integration.page.fake_api import FakeApi
from tests.integration.page.visitor import Visitor


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium for a module only: its driver occupies the event loop of the thread."""
    with chromium() as running:
        yield running


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(Cluster(3)).running() as running:
        yield running


@pytest.fixture(scope="module")
def hostile_api() -> Iterator[FakeApi]:
    with FakeApi(Cluster(5, HOSTILE)).running() as running:
        yield running


@pytest.fixture
def visitor(browser: Browser, api: FakeApi) -> Iterator[Visitor]:
    with Visitor.of(browser, api.url) as one:
        yield one
