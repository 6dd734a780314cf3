"""The import contract that names what is allowed."""

from __future__ import annotations

import pytest
from grimp import ImportGraph

from tests.harness.allowed_imports import AllowedImports


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
