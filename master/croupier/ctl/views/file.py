"""Lines of directories in sandboxes."""

from __future__ import annotations

from datetime import UTC, datetime

from croupier.cli.amounts import View
from croupier.model.printable import printable

_MARKS = {"directory": "/", "link": "@", "other": "?"}


def file_lines(found: View) -> list[str]:
    """Return a line for each entry: size, last write, and name with a mark of its kind."""
    entries = found["items"]
    if not entries:
        return ["no files"]
    width = max(4, *(len(str(each["size"])) for each in entries))
    lines = [f"{'SIZE':>{width}}  {'MODIFIED':20}  NAME"]
    for each in entries:
        size = str(each["size"]) if each["kind"] == "file" else "-"
        name = printable(each["name"]) + _MARKS.get(each["kind"], "")
        lines.append(f"{size:>{width}}  {_time(each['modified_ms']):20}  {name}")
    if found["cut"]:
        lines.append("... and more files, which are not listed")
    return lines


def _time(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return "?"
