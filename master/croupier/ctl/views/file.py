"""Lines of directories in sandboxes."""

from __future__ import annotations

from croupier.api.times import time_text
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
        lines.append(f"{size:>{width}}  {time_text(each['modified_ms']) or '?':20}  {name}")
    if found["cut"]:
        lines.append("... and more files, which are not listed")
    return lines
