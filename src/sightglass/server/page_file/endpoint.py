"""The endpoint for what the page shows as one HTML file."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sightglass.server.api.request import ApiRequest, Raw
from sightglass.server.api.schema import Request, Route
from sightglass.storage.saved_views import MAX_ADDRESS

from .save import page_file

HTML: Final = "text/html"


class PageFileRequest(Request, frozen=True, kw_only=True):
    """An address of the page, such as `#/charts?smooth=0.5`, and the keys of its runs, those that are drawn first."""

    address: Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS, pattern="^#/")]
    runs: Annotated[list[str], msgspec.Meta(max_length=100_000)]


async def save_page_file(call: ApiRequest, query: Request, body: PageFileRequest) -> Raw:
    """Return one HTML file that shows an address without a server: the page with the answers that it needs."""
    data, _ = await page_file(call.runs, body.address, body.runs)
    return Raw(data=data, media_type=HTML, name="sightglass.html")


ROUTES: Final = (
    Route(method="POST", path="/page-file", handler=save_page_file, body=PageFileRequest, response=(HTML,)),
)  # fmt: skip
