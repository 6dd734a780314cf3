"""Running the shell blocks of a Markdown page in order, as a reader would."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.harness.shell_blocks import DAEMON, OWN_SHELL, Block, blocks

_MARK: Final = "=== block "
# Another shell finds copies of certificates and tokens in its directory. Daemons have a session of
# their own and outlive the page's shell; one is ready when its log says so.
_PRELUDE: Final = """
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT TERM
curl() { command curl --fail-with-body --max-time 20 "$@"; }
elsewhere() {
    mkdir -p "elsewhere-$1"
    for file in certs certs/* *.token; do
        if [ -e "$file" ]; then cp -r "$file" "elsewhere-$1"; fi
    done
    cd "elsewhere-$1"
}
latest_task() {
    croupier tasks --state FINISHED --json | python3 -c '
import json, sys
print(max(json.load(sys.stdin), key=lambda task: task["submitted_ms"])["task_id"])'
}
daemon() {
    setsid bash -eu "$1" </dev/null >"$1.log" 2>&1 &
    echo $! >>"$DAEMONS/pids"
    for _ in $(seq 300); do
        if grep -qE '"(master_started|registered)"|: running [0-9]+ job' "$1.log"; then return; fi
        if ! kill -0 $! 2>/dev/null; then break; fi
        sleep 0.1
    done
    cat "$1.log" >&2
    return 1
}
"""


def run_page(
    page: str,
    folder: Path,
    env: Mapping[str, str],
    timeout_s: float,
    rewritten: Callable[[Block], str] = lambda block: block.text,
) -> str:
    """Run the shell blocks of a page's text in `folder`, in one shell; return what they print.

    Args:
        page: its text.
        folder: where it runs.
        env: of the shell. DAEMONS names the directory for logs and pids of daemons, if it has any.
        timeout_s: bound of the whole page.
        rewritten: returns the text that is run for a block.

    Raises:
        AssertionError: if a command fails, prints something else than the page says, or takes
            longer than `timeout_s` with all that come before it.
    """
    found = list(blocks(page))
    script = _PRELUDE + "".join(_part(block, rewritten(block)) for block in found)
    output = run_script(script, folder, env, timeout_s)
    printed = dict(_printed(output))
    for block, answer in pairwise(found):
        if block.runs and answer.language == "output":
            assert is_like(printed[block.line], answer.text), (
                f"line {block.line} printed\n{printed[block.line]}and not\n{answer.text}"
            )
    return output


def run_script(script: str, folder: Path, env: Mapping[str, str], timeout_s: float) -> str:
    """Run a script of bash, and return what it prints.

    Raises:
        AssertionError: if it fails, or takes longer than `timeout_s`.
    """
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder, env=dict(env), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()  # its trap ends what it has started
        out, err = process.communicate(timeout=10)
        raise AssertionError(f"longer than {timeout_s:g} s:\n{out}\n{err}") from None
    assert process.returncode == 0, f"exit code {process.returncode}:\n{out}\n{err}"
    return out


def is_like(printed: str, expected: str) -> bool:
    """Return whether a text has the lines of `expected`, where `...` stands for any lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), printed) is not None


def _part(block: Block, text: str) -> str:
    """Return the part of a page's script that is a block."""
    if block.saved_as:
        return f"cat >{block.saved_as} <<'END OF FILE'\n{text}END OF FILE\n"
    if not block.runs:
        return ""
    head = f"echo '{_MARK}{block.line}'; echo '{_MARK}{block.line}' >&2\n"
    if block.mark == OWN_SHELL:
        return f"{head}(\nelsewhere {block.line}\n{text})\n"
    if block.mark == DAEMON:
        name = f'"$DAEMONS/{block.line}"'
        file = f"mkdir -p \"$DAEMONS\"\ncat >{name} <<'END OF DAEMON'\n{text}END OF DAEMON\n"
        return f"{head}{file}daemon {name}\n"
    return head + text


def _printed(output: str) -> Iterator[tuple[int, str]]:
    """Yield what each block printed, by the line of its fence."""
    for part in output.split(_MARK)[1:]:
        number, _, text = part.partition("\n")
        yield int(number), text
