"""Folders of tests that run in a guest of `tests.harness.uml`, and their results outside.

Tests in such a folder are ordinary tests. The machine does not collect them: see
`collect_ignore` and `in_guest`. One test outside boots a guest, runs pytest in it, and reports each
inner test as one of its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.harness.compiled_shim import SHIM_DIRECTORY, place_shim
from tests.harness.uml import run_in_uml


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one inner test, or of one set of its parameters.

    Attributes:
        name: the test with its parameters.
        fault: why it did not pass, or "".
    """

    name: str
    fault: str


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the tests of a folder.

    Attributes:
        of: results of each inner test, by `file::function`.
        output: everything that pytest wrote.
    """

    of: Mapping[str, Sequence[Result]]
    output: str

    def check(self, test: str) -> None:
        """Check that an inner test ran and passed; skip if it was skipped.

        Raises:
            AssertionError: if it failed or did not run.
        """
        results = self.of.get(test)
        assert results, f"{test} did not run:\n{self.output}"
        skipped = [result.fault for result in results if result.fault.startswith("skipped")]
        if len(skipped) == len(results):
            pytest.skip(skipped[0])
        faults = [f"{result.name}: {result.fault}" for result in results if result.fault]
        assert not faults, "\n".join(faults)


def inner_tests(folder: Path) -> list[str]:
    """Return the tests of a folder as `file::function`, read from the files' text."""
    return [
        f"{file.stem}::{node.name}"
        for file in sorted(folder.glob("test_*.py"))
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    ]


def run_tests(
    folder: Path,
    directory: Path,
    *,
    timeout_s: float,
    memory_mib: int = 768,
    modules: Sequence[str] = (),
    systemd: bool = False,
) -> Results:
    """Run the tests of a folder in a guest.

    Arguments:
        folder: the folder of the tests, in the repository.
        directory: an empty directory for the results, at the same path in the guest.
        timeout_s: seconds for booting and all tests.
        memory_mib: the guest's memory.
        modules: modules of its kernel to load.
        systemd: as in `run_in_uml`.

    Raises:
        NoProgram: if user-mode Linux cannot run here.
        TimeoutError: if the tests do not end in time; holds what pytest printed.
        GuestFailed: if the guest ends before them.
        AssertionError: if pytest makes no report.
    """
    report = directory / "report.xml"
    place_shim(directory)
    # In a guest, the plugin of schemathesis takes seconds to load.
    left_out = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
    words = [sys.executable, "-m", "pytest", *left_out, f"--junitxml={report}"]
    ended = run_in_uml(
        [*words, folder],
        directory=directory,
        timeout_s=timeout_s,
        env={SHIM_DIRECTORY: str(directory)},
        memory_mib=memory_mib,
        modules=modules,
        systemd=systemd,
    )
    assert report.is_file(), f"exit code {ended.code}\n{ended.output}\n{ended.console}"
    return Results(results_in(report), f"{ended.output}\n{ended.console}")


def results_in(report: Path) -> dict[str, list[Result]]:
    """Return the results in a file of `pytest --junitxml`, by `file::function`."""
    results: dict[str, list[Result]] = {}
    for case in ET.parse(report).iter("testcase"):
        name = case.get("name", "")
        test = f"{case.get('classname', '').rpartition('.')[2]}::{name.partition('[')[0]}"
        faults = [
            f"{part.tag}: {part.text or part.get('message')}"
            for part in case
            if part.tag in ("failure", "error", "skipped")
        ]
        results.setdefault(test, []).append(Result(name, "\n".join(faults)))
    return results
