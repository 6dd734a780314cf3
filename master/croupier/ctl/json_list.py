"""A JSON list that is written as its items come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from textwrap import indent
from typing import TextIO

from croupier.ctl.views import View


class JsonList:
    """Writes what `json.dumps` with an indent of 2 makes of all items together."""

    def __init__(self, out: TextIO) -> None:
        """Write to `out`; nothing before the first item, or the end."""
        self._out, self._before = out, "[\n"

    def add(self, items: Iterable[View]) -> None:
        """Write some items."""
        for item in items:
            self._out.write(self._before + indent(json.dumps(item, indent=2), "  "))
            self._before = ",\n"

    def close(self) -> None:
        """End the list."""
        self._out.write("[]\n" if self._before == "[\n" else "\n]\n")
