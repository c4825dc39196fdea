"""The built page, as files that browsers cache."""

from __future__ import annotations

import asyncio
import gzip
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from sightglass.views.encoding import encode_json
from sightglass.views.plotly_frame import document, script_path

from .http_errors import Problem, error_reply

CACHE: Final = "public, max-age=31536000, immutable"
REVALIDATE: Final = "private, no-cache"

NOT_BUILT: Final = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>sightglass</title>
<h1>The front end is not built</h1>
<p>The server works: its API is below <code>/api/v1/</code>. To build the page: <code>cd frontend</code>,
<code>npm ci</code>, <code>npm run build</code>.</p></html>
"""


class _Files(StaticFiles):
    """The built page. Browsers cache files named by their content for good, and revalidate the others."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file."""
        response = super().file_response(*args, **kwargs)
        hashed = "assets" in Path(str(args[0])).parts
        response.headers["cache-control"] = CACHE if hashed else REVALIDATE
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
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(await asyncio.to_thread(path.read_bytes), media_type=SCRIPT_TYPE, headers=headers)
    data = await asyncio.to_thread(_packed, path, stat.st_mtime_ns)
    return Response(data, media_type=SCRIPT_TYPE, headers=headers | {"content-encoding": "gzip"})


@lru_cache(maxsize=1)
def _packed(path: Path, changed_ns: int) -> bytes:
    return gzip.compress(path.read_bytes(), mtime=0)
