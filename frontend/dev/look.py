"""Take pictures of the page at three sizes, light and dark: python dev/look.py LINK FOLDER [NAME=FRAGMENT ...]."""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SIZES = {"wide": (1440, 900), "laptop": (1024, 700), "phone": (390, 844)}
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

link, folder, *places = sys.argv[1:]
out = Path(folder)
out.mkdir(parents=True, exist_ok=True)
base, token = link.split("#")
with sync_playwright() as p:
    browser = p.chromium.launch(executable_path="/usr/bin/chromium", headless=True, args=ARGS)
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.on("console", lambda m: m.type in ("error", "warning") and print("console:", m.text))
            page.on("pageerror", lambda e: print("page error:", e))
            page.goto(f"{base}#{token}")
            page.wait_for_timeout(500)
            for place in places or ["charts=/charts"]:
                name, fragment = place.split("=", 1)
                page.evaluate("f => { location.hash = f }", fragment)
                page.wait_for_timeout(2500)
                page.screenshot(path=out / f"{name}-{size}-{scheme}.png")
            context.close()
    browser.close()
