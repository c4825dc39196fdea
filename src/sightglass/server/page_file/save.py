"""Save what the page shows as one HTML file, without a server."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import msgspec

from sightglass.core.errors import RunNotFoundError, StorageError
from sightglass.core.process.files import runs_folder
from sightglass.server.api.schema import ApiRequest, Raw, Request, Route
from sightglass.server.http_errors import Problem
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.served_run import RunSummary
from sightglass.storage.file_system import LOCAL, written_aside
from sightglass.storage.object_file import MAX_ADDRESS, view_address

from .content import PageContent, check_size, content_of, page_of

MAX_BYTES: Final = 32 * 2**20  # what a mail or a browser takes without complaint


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """A file of the page.

    Attributes:
        path: The file.
        n_bytes: How large it is.
        n_runs: How many runs are in it.
        n_runs_left_out: How many are not, because there are too many.
        n_series: How many series of numbers are in it.
        n_thinned: Of how many of them some points are left out, never an extreme.
        n_media_left_out: How many pictures, sounds, tables and other media of its view are not, for want of room.
    """

    path: Path
    n_bytes: int
    n_runs: int
    n_runs_left_out: int
    n_series: int
    n_thinned: int
    n_media_left_out: int

    def __str__(self) -> str:
        runs = f"{self.n_runs:,} run{'s' if self.n_runs != 1 else ''}"
        others = f"other{'s' if self.n_runs_left_out != 1 else ''}"
        left = f", {self.n_runs_left_out:,} {others} left out" if self.n_runs_left_out else ""
        thinned = f", {self.n_thinned:,} of them thinned" if self.n_thinned else ""
        size = f"{self.n_bytes / 1e6:.1f} MB"
        media = f", {self.n_media_left_out:,} media left out" if self.n_media_left_out else ""
        return f"wrote {self.path} ({size}): {runs}{left}, {self.n_series:,} series{thinned}{media}"


async def page_file(runs: Runs, address: str, keys: Sequence[str]) -> tuple[bytes, PageContent]:
    """Return the HTML file that shows an address, and what is in it; arguments and errors as of `content_of`."""
    content = await content_of(runs, address, keys)
    data = await asyncio.to_thread(lambda: document(content.encoded(), framed=content.framed))
    check_size(data, MAX_BYTES)
    return data, content


def save_page(
    path: str | os.PathLike[str],
    dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    view: str = "#/charts",
    overwrite: bool = False,
) -> PageFile:
    """Save what the page shows of a folder of runs as one HTML file, which needs no server.

    The file is the page itself, with the charts, the table, and, for a view of the page Media, the media: pictures,
    figures, sounds, tables up to 2,000 rows, and texts, up to 12 MiB of all evenly. It holds the runs that the view
    names, then the newest others, at most 100 together; the file applies the view's filter. Series are thinned to what
    fits, without losing an extreme; each chart says so, and the file says how many media are left out.

    Args:
        path: The file to write.
        dir: The folder of runs, or several; by default that of the environment's `SIGHTGLASS_RUNS`, else "runs".
        view: The name of a saved view, or an address of the page such as "#/runs?sort=loss.min".
        overwrite: Whether to replace an existing file.

    Raises:
        UnknownNameError: There is no view of this name.
        RunNotFoundError: A folder does not exist, or has no runs.
        StorageError: The file exists, or cannot be written.
        ValueError: The view is of another page than Charts, Media and Runs, or the file would be too large.
    """
    target = Path(path)
    if target.exists() and not overwrite:
        raise StorageError(f"{str(target)!r} exists already: give another name, or overwrite=True")
    dirs = [runs_folder() if dir is None else dir] if dir is None or isinstance(dir, str | os.PathLike) else list(dir)
    folders = [Path(one) for one in dirs]
    for folder in folders:
        if not folder.is_dir():
            raise RunNotFoundError(f"Expected a folder of runs, got {str(folder)!r}")
    address = view if view.startswith("#/") else view_address(folders, view)
    runs = Runs(folders)
    try:
        runs.refresh(details_s=math.inf)
        keys = keys_for(address, runs.summaries())
        if not keys:
            raise RunNotFoundError(f"Nothing was recorded in {' and '.join(repr(str(one)) for one in dirs)}")
        data, content = runs.live_pool.submit(asyncio.run, page_file(runs, address, keys)).result()
    except Problem as problem:
        raise ValueError(problem.message) from None
    finally:
        runs.close()
    try:
        with written_aside(LOCAL, target, [data], sync=True) as aside:
            LOCAL.replace(aside, target)
    except OSError as error:
        raise StorageError(f"Cannot write {str(target)!r}: {error.strerror or error}") from error
    counts = {name: content.about[name] for name in ("n_runs", "n_runs_left_out", "n_series", "n_thinned")}
    n_left_out = sum(content.about["media_left_out"].values())
    return PageFile(path=target, n_bytes=len(data), n_media_left_out=n_left_out, **counts)


def keys_for(address: str, summaries: Sequence[RunSummary]) -> list[str]:
    """Return the keys of the runs that an address may show: those that it names first, then the newest."""
    _, given = page_of(address)
    named = {key: i for i, key in enumerate([*given.get("pin", ()), *given.get("runs", ())])}
    project = next(iter(given.get("project", ())), "")
    asks = " ".join(given.get("filter", ()))
    found = [
        run
        for run in summaries
        if run.project and (not project or run.project == project)
        and (not run.annotations.deleted or "deleted" in asks) and (not run.annotations.archived or "archived" in asks)
    ]  # fmt: skip
    less = "less" in given
    return [
        run.key
        for run in sorted(
            found, key=lambda run: (named.get(run.key, len(named)), not (less and run.annotations.baseline))
        )
    ]


# The HTML of a file of the page: the page's own program and styles, with the content beside them.
#
# The file works wherever it lies: nothing is fetched, and its policy allows no script but this one. The content is
# msgpack, compressed, in base64, in a script element that browsers do not run.

SCRIPT: Final = re.compile(r'<script type="module"[^>]* src="\./(assets/[^"]+\.js)"></script>')
STYLE: Final = re.compile(r'<link rel="stylesheet"[^>]* href="\./(assets/[^"]+\.css)">')
POLICY: Final = (
    "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src blob: data:; media-src blob:; "
    "base-uri 'none'; form-action 'none'"
)


def document(content: bytes, *, framed: Sequence[str] = ()) -> bytes:
    """Return the HTML file with this content.

    Args:
        content: What it shows.
        framed: The hashes of scripts that its frames run, which inherit its policy.

    Raises:
        StorageError: The page is not built.
    """
    folder = Path(str(files("sightglass.server") / "static"))
    try:
        page = (folder / "index.html").read_text("utf-8")
        script = _inner((folder / _found(SCRIPT, page)).read_text("utf-8"))
        style = (folder / _found(STYLE, page)).read_text("utf-8").replace("</", "<\\/")
        notices = _inner((folder / "THIRD_PARTY.md").read_text("utf-8"))
    except OSError as error:
        raise StorageError("The page is not built: cd frontend, npm ci, npm run build") from error
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    hashes = " ".join(f"'sha256-{one}'" for one in (hashed, *framed))
    data = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(hashes=hashes)}" />'
    page = STYLE.sub(lambda _: f"<style>{style}</style>", SCRIPT.sub("", page))
    page = page.replace('<meta charset="utf-8" />', f'<meta charset="utf-8" />\n    {policy}', 1)
    rest = (
        f'<script type="application/octet-stream" id="sightglass-file">{data}</script>\n'
        f'<script type="text/plain" id="notices">{notices}</script>\n<script type="module">{script}</script>\n'
    )
    head, _, tail = page.rpartition("</body>")
    return f"{head}{rest}</body>{tail}".encode()


def _found(pattern: re.Pattern[str], page: str) -> str:
    found = pattern.search(page)
    if found is None:
        raise StorageError(f"Expected {pattern.pattern} in the built page")
    return found[1]


def _inner(script: str) -> str:
    """Return a script that may stand within its element: nothing in it ends the element, or begins a comment."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


# The endpoint for what the page shows as one HTML file.

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
