"""What the page needs to draw Plotly's figures: the frame for them, and Plotly's script; see `views.plotly_frame`."""

from __future__ import annotations

import asyncio
import gzip
from functools import lru_cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sightglass.views.encoding import encode_json
from sightglass.views.plotly_frame import document, script_path

from .http_errors import Problem, error_reply
from .page_files import REVALIDATE

SCRIPT_TYPE: Final = "text/javascript; charset=utf-8"
MISSING: Final = (
    "Plotly is not installed where this page is served, so its figures are not drawn: pip install plotly there, "
    "or download the figure's JSON"
)


def routes() -> list[BaseRoute]:
    """Return the routes of both files. Like the page, they say nothing of any run, and need no token."""
    return [
        Route("/figure-frame", _frame, methods=["GET"]),
        Route("/plotly.js", _script, methods=["GET"]),
    ]


async def _frame(request: Request) -> Response:
    html, policy = document()
    headers = {"cache-control": REVALIDATE, "content-security-policy": policy, "x-frame-options": "SAMEORIGIN"}
    return Response(html, media_type="text/html; charset=utf-8", headers=headers)


async def _script(request: Request) -> Response:
    path = await asyncio.to_thread(script_path)
    if path is None:
        status, reply = error_reply(Problem(404, "MissingExtraError", MISSING))
        headers = {"cache-control": "no-store"}
        return Response(
            encode_json({"error": reply}), status_code=status, media_type="application/json", headers=headers
        )
    stat = path.stat()
    headers = {
        "cache-control": REVALIDATE,
        "etag": f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"',
        "vary": "accept-encoding",
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(await asyncio.to_thread(path.read_bytes), media_type=SCRIPT_TYPE, headers=headers)
    data = await asyncio.to_thread(_packed, path, stat.st_mtime_ns)
    return Response(data, media_type=SCRIPT_TYPE, headers=headers | {"content-encoding": "gzip"})


@lru_cache(maxsize=1)
def _packed(path: Path, changed_ns: int) -> bytes:
    return gzip.compress(path.read_bytes(), mtime=0)
