"""Commands in the documentation: those that no test runs are at least read by the real programs."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from cyclopts import App
from cyclopts.exceptions import (
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from croupier.agent.__main__ import command_line as agent_command_line
from croupier.ctl.__main__ import connection_after_command
from croupier.ctl.app import app as croupier_app
from croupier.ctl.app import load_commands
from croupier.master.__main__ import command_line as master_command_line
from croupier.model.errors import CroupierError
from tests.harness.doc_pages import (
    LOCAL,
    LOCAL_PAGES,
    OTHER_PAGES,
    PLAIN_PAGES,
    RUN_ELSEWHERE,
    SECURED_PAGES,
    STOPPED_PAGE,
)
from tests.harness.shell_blocks import CLUSTER, Block, blocks
from tests.unit.test_docs import tracked

# A page writes "..." for what it leaves out, and a command may then lack what is required.
LEFT_OUT: Final = "..."
NO_FILE: Final = "No such file or directory"
_OPERATORS: Final = ";&|()<>"
_HERE_DOCUMENT: Final = re.compile(r"<<(\w+)\n.*?^\1$", re.DOTALL | re.MULTILINE)
# Words before a command, and variables that are set for it.
_PREFIX: Final = re.compile(r"(?:do|then|else|until|while|if|!|\{|exec|sudo|[A-Z_0-9]+=.*)")


def commands(script: str) -> Iterator[list[str]]:
    """Yield the simple commands of a script that call Croupier, without redirections."""
    text = _HERE_DOCUMENT.sub("", script).replace("\\\n", " ")
    for line in text.splitlines():
        for words in _simple(line):
            while words and _PREFIX.fullmatch(words[0]):
                words.pop(0)
            if words[:2] == ["docker", "compose"]:
                words = words[next((at for at, word in enumerate(words) if word in PROGRAMS), 0) :]
            if words and words[0] in PROGRAMS:
                yield words


def mistake(words: Sequence[str], *, is_part: bool = False) -> str:
    """Return why the program refuses the words; empty if it accepts them.

    Args:
        words: the program and its arguments.
        is_part: whether arguments may be missing or stand for values, as in a sentence that names
            a command: then only unknown commands and flags are mistakes.
    """
    program, prepare = PROGRAMS[words[0]]
    arguments = [word for word in words[1:] if word != LEFT_OUT]
    is_part = is_part or len(arguments) < len(words) - 1
    try:
        program().parse_args(prepare(arguments), print_error=False, exit_on_error=False)
    except (UnknownCommandError, UnknownOptionError, UnusedCliTokensError) as error:
        return str(error)
    except MissingArgumentError as error:
        return "" if is_part else str(error)
    except (CycloptsError, CroupierError) as error:
        # Files that a command reads are those of the reader.
        return "" if is_part or NO_FILE in str(error) else str(error)
    return ""


def _simple(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words, is_file = list[str](), False
    for word in lexer:
        is_operator = set(word) <= set(_OPERATORS)
        if is_file:
            is_file = False
        elif is_operator and set(word) & set("<>"):
            is_file = True
        elif is_operator:
            yield words
            words = []
        else:
            words.append(word)
    yield words


@cache
def _croupier() -> App:
    load_commands()
    return croupier_app


_agent: Callable[[], App] = cache(agent_command_line)
_master: Callable[[], App] = cache(master_command_line)
PROGRAMS: Final[dict[str, tuple[Callable[[], App], Callable[[list[str]], Any]]]] = {
    "croupier": (_croupier, connection_after_command),
    "croupier-agent": (_agent, list),
    "croupier-master": (_master, list),
}


REPO: Final = Path(__file__).resolve().parents[2]
# Records of what was decided or changed once, and pages that are made of the programs themselves.
NOT_CHECKED: Final = ("CHANGELOG.md", "docs/decisions/", "docs/reference/")
PAGES: Final = [
    page for page in tracked() if page.endswith(".md") and not page.startswith(NOT_CHECKED)
]
# Programs and folders of other machines, or that change this one, and terminals. A block that is
# not run has one.
ELSEWHERE: Final = re.compile(
    r"\b(apt|make|pip|pipx|pip-audit|systemctl|journalctl|docker|kubectl|skopeo|ssh|etcd|SBATCH|simulate"
    r"|deploy/setup.sh|exec -it|--image|--store etcd|/etc/prometheus|prometheus)\b"
)
CODE: Final = re.compile(r"`([^`]+)`")
FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


@cache
def shell_blocks(page: str) -> tuple[Block, ...]:
    return tuple(block for block in blocks((REPO / page).read_text()) if block.language == "sh")


def inline(page: str) -> Iterator[list[str]]:
    """Yield the commands of Croupier that sentences and tables name."""
    text = FENCED.sub("", (REPO / page).read_text())
    for code in CODE.findall(text):
        line = " ".join(code.split()).replace("\\|", "|")
        if line.split(" ")[0] in PROGRAMS:
            yield from commands(line)


def test_programs_accept_the_commands_of_blocks() -> None:
    found = {
        tuple(words): f"{page}:{block.line}"
        for page in PAGES
        for block in shell_blocks(page)
        for words in commands(block.text)
    }
    assert len(found) > 120
    assert [(at, words) for words, at in found.items() if mistake(words)] == []


def test_programs_know_the_commands_and_flags_that_sentences_name() -> None:
    found = {tuple(words): page for page in PAGES for words in inline(page)}
    assert len(found) > 100
    assert [(page, words) for words, page in found.items() if mistake(words, is_part=True)] == []


def test_the_shell_accepts_the_blocks() -> None:
    # Each block is a function, so that none can end in the middle of a command.
    parts = [
        f"_{number}() {{\n{block.text}\n}}\n"
        for page in PAGES
        for number, block in enumerate(shell_blocks(page))
    ]
    done = subprocess.run(["bash", "-n"], input="".join(parts), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_marks_of_blocks_are_known() -> None:
    for page in PAGES:
        for block in blocks((REPO / page).read_text()):
            block.check()


def test_a_test_runs_every_page_with_blocks() -> None:
    found = {page for page in PAGES if any(block.runs for block in shell_blocks(page))}
    here = {*LOCAL_PAGES, *SECURED_PAGES, *PLAIN_PAGES, *OTHER_PAGES, STOPPED_PAGE}
    assert found == here | set(RUN_ELSEWHERE)
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (REPO / test).read_text()


def test_the_clusters_of_pages_are_that_of_the_tests() -> None:
    started = [
        block.text for page in LOCAL_PAGES for block in shell_blocks(page) if block.mark == CLUSTER
    ]
    assert len(started) > 1
    assert all(" ".join(("croupier local", *LOCAL)) in text for text in started)


def test_blocks_that_are_not_run_belong_to_other_machines() -> None:
    left_out = [
        f"{page}:{block.line}"
        for page in PAGES
        for block in shell_blocks(page)
        if block.reason and not ELSEWHERE.search(block.text)
    ]
    assert left_out == []


@pytest.mark.parametrize(
    "line",
    [
        "croupier nosuch",
        "croupier agents --nosuch",
        "croupier tasks --older soon",
        "croupier drain",
        "croupier-agent --master m1:5050 --nosuch x",
        "A=b croupier-master backup --output x --nosuch && true",
        "docker compose run --rm admin croupier drain --nosuch agent1",
    ],
)
def test_mistakes_are_found(line: str) -> None:
    (words,) = commands(f"echo first; {line} # a comment")
    assert mistake(words)


def test_commands_are_found_with_what_shells_put_around_them() -> None:
    script = """
cat >file <<END
croupier nosuch
END
for host in a b; do croupier drain "$host" \\
    --wait; done >log 2>&1
until croupier agents | grep -q m1:5050,m2:5050; do sleep 1; done
kubectl -n croupier create secret
"""
    assert list(commands(script)) == [
        ["croupier", "drain", "$host", "--wait"],
        ["croupier", "agents"],
    ]
    assert mistake(["croupier-master", "--event-log", "events.log", "..."]) == ""
    assert mistake(["croupier", "drain"], is_part=True) == ""
