"""The document in which browsers draw Plotly's figures, and Plotly's own script of the installed package.

Theory of operation
    A figure comes from a run, which nobody has to trust. So it is drawn in a frame of its own, `figure_frame.html`,
    which has no origin (`sandbox`) and may fetch nothing (`POLICY`): whatever a figure made Plotly do there could not
    read the page, its token or the server, and could send nothing away. Plotly compiles functions for the traces that
    it draws with WebGL, so the frame allows `eval`; the page does not. The page hands Plotly's script and the figures
    to the frame as messages, so that the script, 5 MB, is fetched once, and only if there is a figure to draw.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Final

from sightglass.core.errors import MissingExtraError

FRAME: Final = Path(__file__).with_name("figure_frame.html")
SCRIPT: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)
POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'sha256-{hash}' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


@cache
def document() -> tuple[str, str]:
    """Return the document, and its Content-Security-Policy."""
    html = FRAME.read_text("utf-8")
    found = SCRIPT.search(html)
    assert found is not None
    return html, POLICY.format(hash=_hash(found[1]))


def embedded() -> str:
    """Return the document with its policy within, for pages that frame its text."""
    html, policy = document()
    inner = "; ".join(part for part in policy.split("; ") if not part.startswith(("sandbox", "frame-ancestors")))
    return html.replace("<title>", f'<meta http-equiv="Content-Security-Policy" content="{inner}" />\n  <title>', 1)


def alone() -> tuple[str, list[str]]:
    """Return the document with Plotly's script within, and the hashes of both scripts, for a page without a server.

    Such a page allows no `eval`, so the traces that Plotly draws with WebGL are not drawn there.

    Raises:
        MissingExtraError: Plotly is not installed.
    """
    html = FRAME.read_text("utf-8")
    plotly = re.sub(r"<(?=/script|!--)", r"\\x3c", script(), flags=re.IGNORECASE)  # nothing in it ends its element
    found = SCRIPT.search(html)
    assert found is not None
    return html.replace(found[0], f"<script>{plotly}</script>\n  {found[0]}"), [_hash(plotly), _hash(found[1])]


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def script() -> str:
    """Return Plotly's script.

    Raises:
        MissingExtraError: Plotly is not installed.
    """
    path = script_path()
    if path is None:
        raise MissingExtraError("plotly", extra="plot", purpose="Drawing figures of Plotly")
    return path.read_text("utf-8")


def script_path() -> Path | None:
    """Return the file of Plotly's script in the installed package, which is not imported; `None` without it."""
    try:
        spec = importlib.util.find_spec("plotly")
    except (ImportError, ValueError):
        return None
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    return None
