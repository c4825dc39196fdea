"""The built page, as files that browsers cache. What a browser takes compressed is compressed, once for each file."""

from __future__ import annotations

import asyncio
import gzip
import os
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from sightglass.views.encoding import encode_json
from sightglass.views.plotly_frame import document, script_path

from .http_errors import Problem, error_reply

CACHE: Final = "public, max-age=31536000, immutable"
REVALIDATE: Final = "private, no-cache"
TEXTS: Final = (".html", ".js", ".css", ".md")

NOT_BUILT: Final = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>sightglass</title>
<h1>The front end is not built</h1>
<p>The server works: its API is below <code>/api/v1/</code>. To build the page: <code>cd frontend</code>,
<code>npm ci</code>, <code>npm run build</code>.</p></html>
"""


class _Files(StaticFiles):
    """The built page. Browsers cache files named by their content for good, and revalidate the others."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return a file."""
        response, path = super().file_response(full_path, stat_result, scope, status_code), Path(full_path)
        response.headers["cache-control"] = CACHE if "assets" in path.parts else REVALIDATE
        response.headers["vary"] = "accept-encoding"
        if response.status_code == status_code and path.suffix in TEXTS and takes_gzip(Headers(scope=scope)):
            headers = {name: value for name, value in response.headers.items() if name != "content-length"}
            packed = _packed(path, stat_result.st_mtime_ns)
            return Response(packed, status_code, headers | {"content-encoding": "gzip"})
        return response


def page() -> BaseRoute:
    """Return the route of the built page, or of a notice that it is not built."""
    folder = Path(str(files("sightglass.server") / "static"))
    if (folder / "index.html").is_file():
        return Mount("/", _Files(directory=folder, html=True))

    async def not_built(request: Request) -> Response:
        return Response(NOT_BUILT, media_type="text/html; charset=utf-8", headers={"cache-control": "no-store"})

    return Route("/", not_built, methods=["GET"])


# What the page needs to draw Plotly's figures: the frame for them, and Plotly's script; see `views.plotly_frame`.

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
    if not takes_gzip(request.headers):
        return Response(await asyncio.to_thread(path.read_bytes), media_type=SCRIPT_TYPE, headers=headers)
    data = await asyncio.to_thread(_packed, path, stat.st_mtime_ns)
    return Response(data, media_type=SCRIPT_TYPE, headers=headers | {"content-encoding": "gzip"})


def takes_gzip(headers: Headers) -> bool:
    """Return whether a request says that its reply may be compressed."""
    encodings = (one.strip() for one in headers.get("accept-encoding", "").split(","))
    return any(one.partition(";")[0] == "gzip" and not one.endswith(("q=0", "q=0.0")) for one in encodings)


@lru_cache(maxsize=32)
def _packed(path: Path, changed_ns: int) -> bytes:
    return gzip.compress(path.read_bytes(), mtime=0)
