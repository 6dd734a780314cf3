"""The files of the web page: package data, served at `/` and below `/web/`.

Rule: a path is looked up in the list of files, and never joined to a directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from croupier.master.leadership.roster import is_page_url
from croupier.master.web.answers import API_HEADERS, Body, answer
from croupier.process.http.routes import Requirement, Route

DIRECTORY: Final = Path(__file__).with_name("static")
INDEX: Final = "index.html"
_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_COMPRESSED: Final = frozenset({".png", ".woff2", ".ico"})
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'%s; font-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
PAGE_HEADERS: Final[Mapping[str, str]] = {
    **API_HEADERS,
    "Content-Security-Policy": _POLICY % "",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class StaticFiles:
    """The files, each read when it is first asked for, and again after it has changed."""

    def __init__(
        self, directory: Path = DIRECTORY, other_pages: Callable[[], Sequence[str]] = lambda: ()
    ) -> None:
        """List the files of `directory`; the page may connect to masters at `other_pages`."""
        self._other_pages = other_pages
        self._paths = {
            str(path.relative_to(directory)): path
            for path in sorted(directory.rglob("*"))
            if path.suffix in _TYPES and path.is_file()
        }
        # The body of each file, and the time of its change in nanoseconds.
        self._files: dict[str, tuple[Body, int]] = {}

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of the page."""
        return (
            Route("/", self._get, Requirement.PUBLIC),
            Route("/web/{path:.+}", self._get, Requirement.PUBLIC),
        )

    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info.get("path", INDEX)
        path = self._paths.get(name)
        if path is None:
            raise web.HTTPNotFound
        try:
            body = await self._read(name, path)
        except OSError:
            raise web.HTTPNotFound from None
        headers = {**PAGE_HEADERS, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if name == INDEX:
            allowed = "".join(f" {url}" for url in self._other_pages() if is_page_url(url))
            headers["Content-Security-Policy"] = _POLICY % allowed
        kind = _TYPES[path.suffix]
        is_text = kind.startswith("text/") or path.suffix in (".json", ".webmanifest")
        return answer(request, body, headers, kind, "utf-8" if is_text else None)

    async def _read(self, name: str, path: Path) -> Body:
        """Return a file. Raises OSError if it cannot be read."""
        known, known_ns = self._files.get(name, (None, -1))
        data, changed_ns = await asyncio.to_thread(_newer, path, known_ns)
        if known is None or data is not None:
            known = await Body.of(data or b"", is_packed=path.suffix in _COMPRESSED)
            self._files[name] = known, changed_ns
        return known


def _newer(path: Path, known_ns: int) -> tuple[bytes | None, int]:
    """Return the content of a file and its time of change; None if it has not changed since."""
    changed_ns = path.stat().st_mtime_ns
    return None if changed_ns == known_ns else path.read_bytes(), changed_ns
