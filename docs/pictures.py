"""The pictures of the documentation, made by what they show: `make pictures`.

Each is made by the program that a reader would run: the page by `sightglass demo`, the notebook by the example
`vanishing_gradients` in JupyterLab.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import launch  # noqa: E402
from tests.notebook.lab import Lab, Notebook  # noqa: E402

IMAGES = ROOT / "docs" / "images"
ASKED = ("batch.params.dense1.kernel", "epoch.accuracy")  # beside what the demo asks
EPOCHS = 12  # the mark of the turned learning rate, and what came of it, are in sight
FIRST, LAST_SHOWN, LAST = 2, 5, 8  # cells of the notebook: the run, its gradients by layer, and its stop


@contextmanager
def demo(folder: str) -> Iterator[str]:
    """Run the demo; yield the link to its page."""
    command = [sys.executable, "-m", "sightglass", "demo", "--serve", "--no-browser"]
    env = dict(os.environ, SIGHTGLASS_RUNTIME_DIR=tempfile.mkdtemp())
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+token=\S+", line)))
        finally:
            process.send_signal(signal.SIGINT)


def ask(page: Page) -> None:
    """Draw the page of the demo, with four queries that are answered."""
    box = page.get_by_role("region", name="Asked").get_by_role("article")
    box.nth(1).wait_for(timeout=60_000)
    page.get_by_role("button", name="List of runs").click()
    for n, query in enumerate(ASKED, 3):
        field = page.get_by_role("combobox", name="Query")
        field.fill(query)
        field.press("Escape")
        field.press("Enter")
        box.nth(n - 1).wait_for(timeout=60_000)
    page.wait_for_function(
        "([text, n]) => [...document.querySelectorAll('article')].some(one =>"
        " one.textContent.includes(text) && Number(/all (\\d+)/.exec(one.textContent)?.[1]) >= n)",
        arg=["epoch.accuracy", EPOCHS], timeout=600_000,
    )  # fmt: skip
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(2, 2)
    page.wait_for_timeout(500)  # until what the mouse pointed at has faded
    page.screenshot(path=IMAGES / "ask.png")


def notebook(browser: Browser, folder: Path) -> None:
    """Draw the example in JupyterLab, from the run's card to its gradients by layer."""
    lab = Lab(folder, tempfile.mkdtemp())
    try:
        example = json.loads((ROOT / "examples" / "notebooks" / "vanishing_gradients.ipynb").read_text())
        (lab.root / "example.ipynb").write_text(json.dumps(example))
        context = browser.new_context(viewport={"width": 1300, "height": 3000})
        opened = Notebook(lab, "example", context)
        opened.command("notebook:run-all-cells")
        opened.wait_done(LAST)
        opened.page.wait_for_timeout(1_000)  # until the last records are drawn
        top, bottom = (
            opened.cell(place).evaluate("cell => cell.getBoundingClientRect()") for place in (FIRST, LAST_SHOWN)
        )
        clip = {"x": top["x"], "y": top["y"], "width": top["width"], "height": bottom["bottom"] - top["y"]}
        opened.page.screenshot(path=IMAGES / "notebook.png", clip=clip)  # type: ignore[arg-type]
        opened.close()
    finally:
        lab.close()


def main() -> None:
    """Make the pictures that the arguments name, or all."""
    wanted = sys.argv[1:] or ["ask", "notebook"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = launch(playwright)
        if "ask" in wanted:
            with demo(folder) as link:
                page = browser.new_page(viewport={"width": 1280, "height": 925})
                page.goto(link)
                ask(page)
                page.close()
        if "notebook" in wanted:
            notebook(browser, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
