"""All operations of the HTTP API, and OpenAPI's document of them, made from their table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from croupier.api import http_pb2 as http
from croupier.api.forms import Schema, mapping
from croupier.api.schema import Schemas
from croupier.master.web import actions, cluster, events, files, lists
from croupier.master.web.answers import encoded
from croupier.master.web.bodies import HEADER
from croupier.master.web.table import PREFIX, ApiRoute, Asked, Parameter
from croupier.net.version import croupier_version

_PART: Final = re.compile(r"\{(\w+)(:[^}]*)?\}")
# Errors by status. Each operation has the first of these; the rest depends on its method.
_ALWAYS: Final = (400, 401, 403, 404, 429, 500, 503)
_OF_POST: Final = (409, 413)
_REASONS: Final = {
    400: "The request is malformed.",
    401: "There is no valid credential.",
    403: "The caller may not do this, or the request may come from another site's page.",
    404: "There is no such object that the caller may view.",
    409: "The state of the object does not permit this.",
    413: "The body is too large.",
    429: "The caller makes too many requests.",
    500: "The master failed: its log has the reason, with `request_id`.",
    503: "This master does not lead (`not-leader`), or cannot answer now.",
}
_DESCRIPTION: Final = (
    "Everything that the operator service of a Croupier master says, as JSON. The objects are those"
    " that `croupier --json` prints. Callers prove who they are by a bearer token or a client"
    " certificate; without authentication every caller may do everything."
)
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "description": "the ETag of the answer that the caller has: the answer is 304 if it is current",
    "schema": {"type": "string"},
}
_OWN_SITE: Final = {
    "name": HEADER,
    "in": "header",
    "required": True,
    "description": "shows that no page of another site sends the request",
    "schema": {"type": "string", "enum": ["1"]},
}


def document(routes: Iterable[ApiRoute], version: str) -> Schema:
    """Return the document of these routes, for a master of this version."""
    schemas = Schemas()
    error = {"application/json": {"schema": schemas.of(http.ErrorAnswer)}}
    paths: dict[str, Schema] = {}
    for route in routes:
        path = PREFIX + _PART.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Croupier",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"certificate": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": {
                f"Error{status}": {"description": reason, "content": error}
                for status, reason in _REASONS.items()
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _operation(route: ApiRoute, schemas: Schemas) -> Schema:
    is_post = route.method == "POST"
    parameters = [_path_parameter(*match.groups()) for match in _PART.finditer(route.path)]
    parameters += map(_query_parameter, route.query)
    parameters.append(_OWN_SITE if is_post else _IF_NONE_MATCH)
    content: Schema = {}
    if route.answer is not None:
        content = {"schema": schemas.of(route.answer)}
    responses: Schema = {
        "200": {"description": route.summary, "content": {route.content_type: content}}
    }
    if not is_post:
        responses["304"] = {"description": "The caller has the current answer."}
    for status in sorted((*_ALWAYS, *(_OF_POST if is_post else ()))):
        responses[str(status)] = {"$ref": f"#/components/responses/Error{status}"}
    operation: Schema = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    }
    if route.body is not None:
        body = {"schema": schemas.of(route.body)}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    return operation


def _path_parameter(name: str, pattern: str | None) -> Schema:
    more = {"description": "may have slashes"} if pattern else {}
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema, **more}


def _query_parameter(parameter: Parameter) -> Schema:
    found: Schema = {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
    if parameter.is_list:
        found |= {"style": "form", "explode": True}
    return found


def _operation_id(route: ApiRoute) -> str:
    """Return the name of an operation, such as `get_agents_by_agent_id`."""
    words = [route.method.lower()]
    for part in route.path.strip("/").split("/"):
        match = _PART.fullmatch(part)
        words.append(f"by_{match[1]}" if match else re.sub(r"\W", "_", part))
    return "_".join(words)


async def _openapi(_: Asked) -> bytes:
    return _encoded()


@cache
def _encoded() -> bytes:
    return encoded(document(ROUTES, croupier_version()))


ROUTES: Final[tuple[ApiRoute, ...]] = (
    *cluster.ROUTES,
    *lists.ROUTES,
    *files.ROUTES,
    *actions.ROUTES,
    *events.ROUTES,
    ApiRoute("/openapi.json", _openapi, "Return this document.", mapping({})),
)
