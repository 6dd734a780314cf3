"""A headless Chromium for tests: from PATH, or unpacked from Debian packages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.harness.debian import KEPT, NoProgram, found, program, unavailable, unpack

# Names of Chromium on PATH; the last one is what is downloaded.
NAMES = ("chromium", "google-chrome", "chromium-headless-shell")
SYSTEM_FONTS = Path("/usr/share/fonts")
FONTS_PACKAGE = "fonts-dejavu-core"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless Chromium; skip the test, or fail it in CI, if there is none."""
    path = next(filter(None, map(found, NAMES)), None) or program(NAMES[-1])
    # The sandbox needs namespaces, which root and many containers may not make. The only pages are
    # those of the tests.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        browser = playwright.chromium.launch(
            executable_path=str(path), args=arguments, env={**os.environ, **fonts(Path(scratch))}
        )
        try:
            yield browser
        finally:
            browser.close()


def fonts(scratch: Path) -> dict[str, str]:
    """Return variables that name fonts to use; none if the machine has fonts."""
    if any(SYSTEM_FONTS.rglob("*.[to]tf")):
        return {}
    tree = KEPT / "trees" / FONTS_PACKAGE
    try:
        if not tree.is_dir():
            half = scratch / "fonts"
            half.mkdir()
            unpack("Chromium's font", FONTS_PACKAGE, half)
            half.rename(tree)
    except NoProgram as reason:
        unavailable(reason)
    settings = scratch / "fonts.conf"
    settings.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">'
        f"<fontconfig><dir>{tree}</dir><cachedir>{scratch}/cache</cachedir></fontconfig>"
    )
    return {"FONTCONFIG_FILE": str(settings)}
