"""Commands against a scripted master, as text; see transcripts/README.md for its form."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from croupier.model import errors
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb
from tests.harness.command import croupier
from tests.harness.operators import ScriptedOperator, serving

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
PRINTED = (">", "!", "=", "<")
_ANSWER = re.compile(r"(\w+)(\+?): ?(.*)")


def blocks(path: Path) -> list[str]:
    return path.read_text().strip().split("\n\n")


CASES = [(path, block) for path in FILES for block in blocks(path) if "\n$ " in block]


class Case:
    """One block: answers of the master, and commands."""

    def __init__(self, operator: ScriptedOperator) -> None:
        self._operator = operator
        self._answers: dict[str, list[str]] = {}
        self._latest = ""

    async def run(self, block: str) -> list[str]:
        """Run the block, and return it with what its commands print now."""
        lines = []
        for line in block.splitlines():
            if line.startswith(PRINTED):
                continue
            lines.append(line)
            if line.startswith("$ "):
                lines += await self._shown(shlex.split(line[2:]))
            elif not line.startswith("#"):
                self._script(line)
        return lines

    def _script(self, line: str) -> None:
        """Set an answer, add a page with `METHOD+: ...`, or continue the line above."""
        if line.startswith("  "):
            self._answers[self._latest][-1] += line
            return
        found = _ANSWER.fullmatch(line)
        assert found, line
        self._latest, is_page, text = found.groups()
        self._answers[self._latest] = [*(self._answers[self._latest] if is_page else []), text]

    async def _shown(self, words: list[str]) -> list[str]:
        """Run a command; return its output, its exit code unless 0, and its requests."""
        operator = self._operator
        operator.asked.clear()
        for name, texts in self._answers.items():
            pages = [answer(name, text) for text in texts]
            operator.answers[request_of(name)] = pages if len(pages) > 1 else pages[0]
        env: dict[str, Any] = {} if "--master" in words else {"CROUPIER_MASTER": operator.address}
        while re.match("[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        words, paths = words[: words.index("|")] if "|" in words else words, paths_of(words)
        done = await croupier(*(each.replace("MASTER", operator.address) for each in words), **env)
        out = picked(json.loads(done.out), paths) if paths and done.out else lines_of(done.out)
        printed = [f"> {line}" for line in out] + [f"! {line}" for line in lines_of(done.err)]
        code = [f"= {done.code}"] if done.code else []
        asked = sorted(f"< {told(each)}" for each in operator.asked)
        shown = [*printed, *code, *(each for each in asked if each != "< GetMaster")]
        return [line.replace(operator.address, "MASTER").rstrip() for line in shown]


def request_of(name: str) -> type[Message]:
    kind: type[Message] = getattr(module_of(name), f"{name}Request")
    return kind


def module_of(name: str) -> Any:
    """Return the module with the messages of a method."""
    return pb if hasattr(pb, f"{name}Request") else access_pb2


def answer(name: str, text: str) -> Any:
    """Return a message, or the error of `error KIND TEXT`."""
    if text.startswith("error "):
        _, kind, message = text.split(" ", 2)
        return getattr(errors, kind)(message.encode().decode("unicode_escape"))
    return text_format.Parse(text, getattr(module_of(name), f"{name}Response")())


def told(message: Message) -> str:
    """Return a request as text."""
    name = type(message).__name__.removesuffix("Request")
    return f"{name} {text_format.MessageToString(message, as_one_line=True)}".rstrip()


def lines_of(text: str) -> list[str]:
    """Return the lines of an output; a terminal would obey none of their characters."""
    assert all(char.isprintable() or char == "\n" for char in text), ascii(text)
    assert not text or text.endswith("\n")
    return text.split("\n")[:-1]


def paths_of(words: list[str]) -> list[list[str]]:
    named = words[words.index("|") + 1 :] if "|" in words else []
    return [path.split(".") for path in named]


def picked(found: Any, paths: list[list[str]]) -> list[str]:
    """Return the values at these paths of a JSON object, or of each object of a list."""
    lines = []
    for each in found if isinstance(found, list) else [found]:
        values = []
        for path in paths:
            value = each
            for step in path:
                value = value[int(step) if step.isdigit() else step]
            values.append(json.dumps(value))
        lines.append(" ".join(values))
    return lines


@pytest.mark.parametrize(
    ("path", "block"), CASES, ids=[f"{path.stem}-{b.splitlines()[0][2:]}" for path, b in CASES]
)
async def test_transcript(path: Path, block: str, request: pytest.FixtureRequest) -> None:
    async with serving(ScriptedOperator()) as operator:
        case, first = Case(operator), blocks(path)[0]
        if "\n$ " not in first:
            await case.run(first)
        text = "\n".join(await case.run(block))
    if request.config.getoption("--rewrite"):
        path.write_text(path.read_text().replace(block, text))
    assert text in path.read_text()
    assert request.config.getoption("--rewrite") or text == block
