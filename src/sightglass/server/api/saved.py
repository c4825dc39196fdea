"""The endpoints for saved views: names for addresses of the page, in a file beside the runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from sightglass.server.http_errors import bad_request
from sightglass.storage.object_file import MAX_ADDRESS, MAX_NAME, VIEW_NAME, read_views, rename_view, save_view

from .schema import ApiRequest, Request, Route

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME, pattern=VIEW_NAME)]
Address = Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS, pattern="^#/")]


class SavedView(Request, frozen=True, kw_only=True):
    """A name, and the fragment of an address such as `#/charts?smooth=0.5`; `null` removes the view."""

    name: Name
    address: Address | None


class RenamedView(Request, frozen=True, kw_only=True):
    """The name of a view, and what it is called from now on."""

    name: Name
    renamed: Name


class SavedViewList(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the saved views by their names."""

    views: dict[str, str]


async def get_saved_views(call: ApiRequest, query: Request) -> SavedViewList:
    """Return the views that people saved beside the runs."""
    return SavedViewList(views=await call.read(read_views, call.runs.directories))


async def post_saved_view(call: ApiRequest, query: Request, body: SavedView) -> SavedViewList:
    """Save a view under a name, replace the one of that name, or remove it."""
    return await _changed(call, save_view, body.name, body.address)


async def post_view_name(call: ApiRequest, query: Request, body: RenamedView) -> SavedViewList:
    """Give a view another name, which no other view has."""
    return await _changed(call, rename_view, body.name, body.renamed)


async def _changed(call: ApiRequest, change: Callable[..., None], *what: str | None) -> SavedViewList:
    try:
        await call.read(change, call.runs.directories, *what)
    except ValueError as error:
        raise bad_request(str(error)) from None
    return await get_saved_views(call, Request())


ROUTES: Final = (
    Route(method="GET", path="/saved-views", handler=get_saved_views, response=SavedViewList),
    Route(method="POST", path="/saved-views", handler=post_saved_view, body=SavedView, response=SavedViewList,
          controllers_only=True),
    Route(method="POST", path="/saved-views/name", handler=post_view_name, body=RenamedView, response=SavedViewList,
          controllers_only=True),
)  # fmt: skip
