"""Measure how fast a million points are drawn, moved and zoomed: python dev/million.py [N_TIMES]."""

import sys

from playwright.sync_api import sync_playwright

from views import ARGS, serve


def main() -> None:
    """Measure, and print."""
    n_times = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", headless=True, args=ARGS)
        page = browser.new_page(viewport={"width": 1000, "height": 500})
        page.on("pageerror", lambda e: print("page error:", e))
        page.goto(f"{serve()}/million.html")
        page.wait_for_function("window.measure")
        for options in ("{}", "{ smooth: 0.9, x: 'relative' }"):
            for _ in range(n_times):
                found = page.evaluate(f"measure({options})")
                moves = ", ".join(
                    f"{name} {found[name]['frames_a_second']:.0f} frames/s (p95 {found[name]['p95_ms']:.0f} ms)"
                    for name in ("pan", "zoom")
                )
                kept = "spike kept" if found["spike"] else "SPIKE LOST"
                live = f"live {found['live_frames_a_second']:.0f} frames/s"
                drawn = f"draw_ms {found['draw_ms']:.0f}, {moves}, {live}, {found['n_drawn']} points drawn"
                print(f"{options:30} {drawn}, {kept}")
        browser.close()


if __name__ == "__main__":
    main()
