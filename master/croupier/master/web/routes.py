"""All operations of the HTTP API."""

from __future__ import annotations

from typing import Final

from croupier.master.web import (
    about,
    actions,
    events,
    files,
    lists,
    objects,
    openapi,
    overview,
    role_changes,
)
from croupier.master.web.table import ApiRoute

ROUTES: Final[tuple[ApiRoute, ...]] = (
    *about.ROUTES,
    *lists.ROUTES,
    *objects.ROUTES,
    *files.ROUTES,
    *actions.ROUTES,
    *role_changes.ROUTES,
    *events.ROUTES,
    *overview.ROUTES,
    *openapi.ROUTES,
)
