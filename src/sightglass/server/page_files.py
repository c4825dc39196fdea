"""The built page, as files that browsers cache."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

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
