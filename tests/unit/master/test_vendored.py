"""Libraries that the page carries with it are those of their makers, unchanged."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

VENDOR = Path(str(files("croupier.master") / "web/static/vendor"))


def test_vendored_files_have_their_checksums() -> None:
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    held = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    assert held == listed
    assert any(name.endswith("LICENSE") for name in held)
