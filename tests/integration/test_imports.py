"""Heavy modules that an import does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest
from grimp import ImportGraph

from tests.harness.allowed_imports import AllowedImports

TERMINAL = {"cyclopts", "rich"}
WEB = {"aiohttp", "yarl", "multidict"}


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import croupier.sdk", {"re2", "prometheus_client", "structlog", *TERMINAL, *WEB}),
        ("import croupier.net.client_session", {"prometheus_client", "structlog", *TERMINAL, *WEB}),
        ("import croupier.master.__main__", {"grpc", "structlog", "rich", *WEB}),
        ("import croupier.master.app", {"re2", "structlog", "croupier.etcd", *TERMINAL, *WEB}),
        ("import croupier.agent.__main__", {"grpc", "structlog", "rich", *WEB}),
        (
            "import croupier.agent.app",
            {"re2", "structlog", "croupier.mesos", "croupier.agent.mesos", *TERMINAL, *WEB},
        ),
        (
            "import croupier.ctl.__main__",
            {"grpc", "google.protobuf", "structlog", "rich", "yaml", *WEB},
        ),
    ],
)
def test_import_loads_no_heavy_module(statement: str, absent: set[str]) -> None:
    assert loaded_by(statement) & absent == set()


@pytest.mark.parametrize(
    "statement",
    [
        "import croupier.sdk, croupier.futures, croupier.master.app, croupier.agent.app",
        "from croupier.ctl.__main__ import main; main(['agents', '--help'])",
        "from croupier.ctl.__main__ import main; main(['run', '--help'])",
    ],
)
def test_only_its_own_command_loads_the_laboratory(statement: str) -> None:
    """`croupier --help` loads its command line too, for the summary."""
    assert not {name for name in loaded_by(statement) if name.startswith("croupier.lab")}


def test_the_summary_of_all_commands_loads_no_library_of_the_laboratory() -> None:
    loaded = loaded_by("from croupier.ctl.__main__ import main; main(['--help'])")
    assert "croupier.lab.cli" in loaded
    assert not {"matplotlib", "numpy", "croupier.master"} & loaded


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        ([], set()),
        (["weights"], {"role_settings"}),
        (["quota", "set"], {"role_settings"}),
        (["why"], {"framework"}),
    ],
)
def test_help_loads_no_other_command(words: list[str], modules: set[str]) -> None:
    loaded = loaded_by(f"from croupier.ctl.__main__ import main; main({[*words, '--help']})")
    package = "croupier.ctl.commands."
    found = {name.removeprefix(package) for name in loaded if name.startswith(package)}
    assert found == modules
    assert loaded & {"aiohttp", "structlog", "cryptography"} == set()
    assert modules or loaded & {"grpc", "google.protobuf"} == set()


def test_first_pattern_loads_re2() -> None:
    assert "re2" in loaded_by("from croupier.sdk import matches; matches('rack', 'r.*')")


def test_pattern_without_re2_is_refused_by_name() -> None:
    program = """
sys.modules["re2"] = None
from croupier.sdk import InvalidRequest, matches
try:
    matches("rack", "r.*")
except InvalidRequest as error:
    assert "constraint on rack" in str(error) and "pip install google-re2" in str(error), error
else:
    raise AssertionError("the pattern was taken")
"""
    loaded_by(program)


# The import contract that names what is allowed.


def graph_with(*imports: tuple[str, str]) -> ImportGraph:
    graph = ImportGraph()
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported, line_number=3, line_contents="")
    return graph


def contract(*allow: str, apart_from: tuple[str, ...] = ()) -> AllowedImports:
    options = {"packages": ["a"], "allow": list(allow), "apart_from": list(apart_from)}
    return AllowedImports("rule", {}, options)


def illegal(graph: ImportGraph, rule: AllowedImports) -> list[str]:
    check = rule.check(graph, verbose=False)
    found: list[str] = check.metadata["illegal"]
    assert check.kept == (not found)
    return found


def test_a_package_may_import_itself_and_what_is_named() -> None:
    graph = graph_with(("a.x", "a.y"), ("a.x", "b.z"), ("a.y", "json"), ("a.y", "b"))
    assert illegal(graph, contract("b", "pure")) == []


@pytest.mark.parametrize("imported", ["c", "bb", "asyncio", "time"])
def test_anything_else_is_illegal(imported: str) -> None:
    graph = graph_with(("a.x", imported))
    assert illegal(graph, contract("b", "pure")) == [f"a.x (line 3) imports {imported}"]


def test_the_standard_library_is_not_more_than_that() -> None:
    graph = graph_with(("a.x", "asyncio"), ("a.x", "grpc"))
    assert illegal(graph, contract("stdlib")) == ["a.x (line 3) imports grpc"]


def test_a_package_with_a_contract_of_its_own_is_left_to_that() -> None:
    graph = graph_with(("a.inner.x", "c"), ("a.x", "a.inner.x"))
    assert illegal(graph, contract("b", apart_from=("a.inner",))) == []


def test_a_contract_for_no_package_is_an_error() -> None:
    with pytest.raises(ValueError, match="no package a"):
        illegal(graph_with(("b", "c")), contract("b"))
