"""Cases: what an attack sent, kept in a corpus and saved with a finding."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")
SUFFIX: Final = ".case"


@dataclass(slots=True)
class Case:
    """Requests in the order in which one peer sent them.

    Attributes:
        target: the path of a method, or the name of another kind of attack.
        about: for people, such as the finding that it caused.
        sent: encoded messages, or bytes of a connection.
    """

    target: str
    about: str = ""
    sent: list[bytes] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write the case to a file."""
        head = json.dumps({"target": self.target, "about": self.about})
        lines = [base64.b64encode(each).decode() for each in self.sent]
        path.write_text("\n".join([head, *lines, ""]))

    @classmethod
    def load(cls, path: Path) -> Case:
        """Read a case from a file."""
        head, *lines = path.read_text().splitlines()
        return cls(**json.loads(head), sent=[base64.b64decode(line) for line in lines])


def corpus() -> Iterator[tuple[str, Case]]:
    """Yield the names and cases of the corpus, by name."""
    for path in sorted(CORPUS.glob(f"*{SUFFIX}")):
        yield path.stem, Case.load(path)
