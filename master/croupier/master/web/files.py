"""Output and files of tasks over the HTTP API.

Rule: bytes of a task are never shown as a page: they are a download of no type, without scripts.
If an answer cannot be completed, its connection is closed before the end of the answer.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import Any, Final

from aiohttp import web

from croupier.master.services.output_links import STREAMS
from croupier.master.web.answers import API_HEADERS
from croupier.master.web.table import ApiRoute, Asked, Parameter, call_route, flag, integer
from croupier.model.errors import CroupierError, NotFound
from croupier.v1 import operator_pb2 as pb

_HEADERS: Final = {
    **API_HEADERS,
    "Content-Security-Policy": f"{API_HEADERS['Content-Security-Policy']}; sandbox",
    "Content-Type": "application/octet-stream",
    "Content-Disposition": "attachment",
    "Cache-Control": "no-store",
    "Accept-Ranges": "bytes",
}
_MOST: Final = 2**62
_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{0,18})|bytes=-(\d{1,18})", re.ASCII)


async def _output(asked: Asked) -> web.StreamResponse:
    stream = asked.path["stream"]
    if stream not in STREAMS:
        raise NotFound(f"a task has {' and '.join(STREAMS)}, not {stream[:80]!r}")
    return await _send(asked, stream)


async def _list(asked: Asked) -> Any:
    query = asked.query
    request = pb.ListTaskFilesRequest(**asked.path, agent_id=query["agent"], path=query["path"])
    return await asked.ask("ListTaskFiles", request)


async def _send(asked: Asked, path: str) -> web.StreamResponse:
    request, is_part = _request(asked, path)
    async with aclosing(asked.calls.stream("ReadTaskFile", request)) as answers:
        # An error before the first message is answered in JSON.
        begin = await anext(answers)
        response, left = _response(begin, request if is_part else None)
        if response.status == 416:
            return response
        response.enable_chunked_encoding()
        await response.prepare(asked.http)
        if asked.http.method == "HEAD":
            return response
        end = begin.offset
        try:
            async for answer in answers:
                if answer.offset != end:
                    break
                data = answer.data if left is None else answer.data[:left]
                end += len(data)
                left = None if left is None else left - len(data)
                await response.write(data)
                if left == 0:
                    await response.write_eof()
                    return response
            else:
                await response.write_eof()
                return response
        except CroupierError:
            # The reader learns why when it asks again.
            pass
        except ConnectionError:
            return response
    if asked.http.transport is not None:
        asked.http.transport.close()
    return response


def _request(asked: Asked, path: str) -> tuple[pb.ReadTaskFileRequest, bool]:
    """Return the request, and whether it is for the range of a header."""
    query = asked.query
    request = pb.ReadTaskFileRequest(
        framework_id=asked.path["framework_id"],
        task_id=asked.path["task_id"],
        agent_id=query["agent"],
        path=path,
        tail_lines=query["tail"],
        tail_bytes=query["tail_bytes"],
        follow=query["follow"],
    )
    for name in ("offset", "limit"):
        if query[name] >= 0:
            setattr(request, name, query[name])
    named = ("offset", "limit", "tail", "tail_bytes", "follow")
    if any(name in asked.http.query for name in named):
        return request, False
    wanted = _range(asked.http.headers.get("Range", ""))
    request.MergeFrom(pb.ReadTaskFileRequest(**wanted))
    return request, bool(wanted)


def _range(header: str) -> dict[str, Any]:
    """Return the fields for the range of a header; none for one that HTTP lets a server ignore."""
    found = _RANGE.fullmatch(header.strip())
    if found is None:
        return {}
    first, last, suffix = found.groups()
    if suffix is not None:
        return {"tail_bytes": int(suffix)}
    if not last:
        return {"offset": int(first)}
    limit = int(last) - int(first) + 1
    return {"offset": int(first), "limit": limit} if limit > 0 else {}


def _response(
    begin: Any, wanted: pb.ReadTaskFileRequest | None
) -> tuple[web.StreamResponse, int | None]:
    """Return the answer without its body, and how many bytes it has; None: all that there are."""
    offset, size = begin.offset, begin.size
    headers = {**_HEADERS, "Croupier-Offset": str(offset), "Croupier-Size": str(size)}
    if wanted is None:
        return web.StreamResponse(headers=headers), None
    end = min(size, wanted.offset + wanted.limit) if wanted.HasField("limit") else size
    if offset >= end:
        headers["Content-Range"] = f"bytes */{size}"
        return web.StreamResponse(status=416, headers=headers), 0
    headers["Content-Range"] = f"bytes {offset}-{end - 1}/{size}"
    return web.StreamResponse(status=206, headers=headers), end - offset


_AGENT: Final = Parameter("agent", "the agent of a task that the master has forgotten")
_PART: Final = (
    integer("offset", "the offset of the first byte in all that was written", 0, _MOST, -1),
    integer("limit", "the most bytes", 0, _MOST, -1),
    integer("tail", "the last lines", 0, 1_000_000, 0),
    integer("tail_bytes", "the last bytes", 0, _MOST, 0),
    flag("follow", "go on until the task has ended"),
    _AGENT,
)
_TASK: Final = "/tasks/{framework_id}/{task_id}"
ROUTES: Final = (
    ApiRoute(
        f"{_TASK}/output/{{stream}}",
        _output,
        "Return the output of a task, stdout or stderr, or one range of it.",
        None,
        _PART,
        content_type="application/octet-stream",
    ),
    call_route(
        f"{_TASK}/use",
        "GetTaskUse",
        "Return what a live task has used so far, and the limits that its agent enforces.",
    ),
    ApiRoute(
        f"{_TASK}/files",
        _list,
        "List a directory of a task's sandbox.",
        pb.ListTaskFilesResponse,
        (Parameter("path", "a directory below the sandbox; empty: the sandbox itself"), _AGENT),
    ),
    ApiRoute(
        f"{_TASK}/files/{{path:.+}}",
        lambda asked: _send(asked, asked.path["path"]),
        "Return a file of a task's sandbox, or one range of it.",
        None,
        _PART,
        content_type="application/octet-stream",
    ),
)
