"""The operations of the HTTP API, from the master's table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from croupier.api.schema import Schemas
from croupier.master.web.routes import ROUTES
from croupier.master.web.table import PREFIX, ApiRoute, Parameter
from docs.site.reference.markdown import cell, paragraph, table


def operations() -> Iterator[str]:
    """Yield the table of all operations, then the parameters of each."""
    routes = sorted(ROUTES, key=lambda route: (route.path, route.method))
    rows = [
        (f"`{route.method} {PREFIX}{route.path}`", cell(route.summary), _answer(route))
        for route in routes
    ]
    yield from table(("Operation", "Meaning", "Answer"), rows)
    for route in routes:
        if route.query or route.body:
            yield from ("", f"## {route.method} {route.path}")
            yield from _details(route)


def _details(route: ApiRoute) -> Iterator[str]:
    if route.query:
        rows = [(f"`{each.name}`", cell(each.description), _default(each)) for each in route.query]
        yield from ("", *table(("Parameter", "Meaning", "Default"), rows))
    if route.body:
        fields = ", ".join(f"`{name}`" for name in _keys(route.body))
        yield ""
        yield from paragraph(f"Fields of the body: {fields}.")


def _default(each: Parameter) -> str:
    return f"`{each.default}`" if each.default not in ("", None, (), False) else ""


def _answer(route: ApiRoute) -> str:
    if route.answer is None:
        return f"`{route.content_type}`"
    return f"`{_name(route.answer)}`"


def _name(answer: Any) -> str:
    """Return the name of an object, or the type of another schema."""
    schema = Schemas().of(answer)
    return str(schema.get("$ref", schema.get("type"))).rpartition("/")[2]


def _keys(body: Any) -> Iterable[str]:
    schemas = Schemas()
    schemas.of(body)
    return list(schemas.components[_name(body)]["properties"])
