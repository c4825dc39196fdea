"""Take pictures of every view as it is mounted alone, light and dark: python dev/views.py FOLDER [VIEW ...]."""

import functools
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import sync_playwright

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HERE = Path(__file__).parent
BUILT = HERE.parent.parent / "src/sightglass/views/static/views.js"


class Handler(SimpleHTTPRequestHandler):
    """Serves this folder, and the built module."""

    def translate_path(self, path: str) -> str:
        """Return the file of an address."""
        return str(BUILT) if path == "/views.js" else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def serve() -> str:
    """Serve in the background; return the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(HERE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def main() -> None:
    """Take the pictures."""
    folder, *views = sys.argv[1:]
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", headless=True, args=ARGS)
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1460, "height": 900})
            page.on("console", lambda m: m.type in ("error", "warning") and print("console:", m.text))
            page.on("pageerror", lambda e: print("page error:", e))
            page.goto(f"{serve()}/views.html#{theme}")
            page.wait_for_timeout(1500)
            page.screenshot(path=out / f"all-{theme}.png", full_page=True)
            for view in views:
                page.locator(f"#{view}").hover()
                page.wait_for_timeout(300)
                page.locator(f"#{view}").screenshot(path=out / f"{view}-{theme}.png")
        browser.close()


if __name__ == "__main__":
    main()
