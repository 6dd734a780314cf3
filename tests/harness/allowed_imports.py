"""An import contract that names what packages may import: anything else breaks it.

The contracts are in `pyproject.toml`. A new module falls under the contract of its package
without an edit. `pure` stands for the modules of the standard library that do no I/O, read no
clock and draw no random numbers; `stdlib` stands for all of the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

_PURE_MODULES: Final = """
    __future__ abc array base64 bisect collections copy dataclasses difflib enum fractions functools
    hashlib heapq itertools json math operator re statistics string textwrap types typing zlib
"""
PURE: Final = frozenset(_PURE_MODULES.split())


class AllowedImports(Contract):
    """Contract: a module of `packages` may import its own package and the entries of `allow`.

    Attributes:
        packages: the packages that the contract binds.
        apart_from: packages within these that have a contract of their own.
        allow: packages or modules, with all their submodules; `NAME.__init__` for one without
            them; `pure`; `stdlib`.
    """

    type_name = "allowed"

    packages = fields.ListField(fields.StringField())
    apart_from = fields.ListField(fields.StringField(), required=False)
    allow = fields.ListField(fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Check every direct import; imports for type checkers count too."""
        packages = cast("list[str]", self.packages)
        illegal = [
            f"{module} (line {line}) imports {imported}"
            for package in packages
            for module in sorted(self._modules(graph, package))
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if not (within(imported, [package]) or self._is_allowed(imported))
            for line in [_line(graph, module, imported)]
        ]
        return ContractCheck(kept=not illegal, metadata={"illegal": illegal})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each illegal import on a line."""
        for line in check.metadata["illegal"]:
            output.print_error(line)
        output.print_error(f"Allowed: {', '.join(cast('list[str]', self.allow))}.")

    def _modules(self, graph: ImportGraph, package: str) -> Iterator[str]:
        apart = cast("list[str] | None", self.apart_from) or []
        found = [each for each in graph.modules if within(each, [package])]
        if not found:
            raise ValueError(f"no package {package}")
        return (each for each in found if not within(each, apart))

    def _is_allowed(self, imported: str) -> bool:
        allow = cast("list[str]", self.allow)
        return (
            within(imported, allow)
            or f"{imported}.__init__" in allow
            or ("pure" in allow and imported in PURE)
            or ("stdlib" in allow and imported in sys.stdlib_module_names)
        )


def within(module: str, packages: Iterable[str]) -> bool:
    """Return whether `module` is one of `packages`, or in one of them."""
    return any(module == each or module.startswith(f"{each}.") for each in packages)


def _line(graph: ImportGraph, importer: str, imported: str) -> int:
    details = graph.get_import_details(importer=importer, imported=imported)
    return min((each["line_number"] for each in details), default=0)
