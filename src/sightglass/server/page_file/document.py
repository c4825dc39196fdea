"""The HTML of a file of the page: the page's own program and styles, with the content beside them.

The file works wherever it lies: nothing is fetched, and its policy allows no script but this one. The content is
msgpack, compressed, in base64, in a script element that browsers do not run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from sightglass.core.errors import StorageError

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
