"""What a page looks like: the pixels of its charts, its layout, and what axe-core says of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Locator, Page, expect
from tests.waiting import wait_until

LOOK_MS = 30

# Where pixels of a colour lie: for each column of the plot's area, from the left, [lowest, highest, how many]; heights
# are shares of the area's, from below. Pixels that anti-aliasing blended with the ground count if they are near enough.
INK = """
(canvas, [color, near]) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true })
  const colorOf = (element) => getComputedStyle(element).backgroundColor
  let ground = canvas
  while (ground.parentElement && colorOf(ground) === 'rgba(0, 0, 0, 0)') ground = ground.parentElement
  copy.fillStyle = colorOf(ground)
  copy.fillRect(0, 0, canvas.width, canvas.height)
  copy.drawImage(canvas, 0, 0)
  const image = copy.getImageData(0, 0, canvas.width, canvas.height)
  const box = canvas.getBoundingClientRect()
  const over = (canvas.parentElement.querySelector('.u-over') ?? canvas).getBoundingClientRect()
  const ratio = canvas.width / box.width
  const area = [over.left - box.left, over.top - box.top, over.width, over.height]
  const [left, top, width, height] = area.map((v) => Math.round(v * ratio))
  const columns = []
  for (let x = left; x < left + width; x++) {
    let [low, high, n] = [null, null, 0]
    for (let y = top; y < top + height; y++) {
      const i = 4 * (y * canvas.width + x)
      if (color.some((c, k) => Math.abs(c - image.data[i + k]) > near)) continue
      low = 1 - (y - top + 0.5) / height
      high ??= low
      n++
    }
    columns.push([low, high, n])
  }
  return columns
}
"""

# What is wider than the window, and what is cut off in buttons.
OVERFLOW = """
() => {
  const wide = document.documentElement.scrollWidth > innerWidth || document.body.scrollWidth > innerWidth
  const cut = [...document.querySelectorAll('button, [role=button], [role=tab], a')].filter((e) => {
    const style = getComputedStyle(e)
    if (!e.checkVisibility() || e.closest('.unseen')) return false
    const more = e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1
    return style.textOverflow !== 'ellipsis' && style.overflow !== 'visible' && more
  })
  const beyond = [...document.querySelectorAll('button, input, select, a')].filter((e) => {
    const box = e.getBoundingClientRect()
    if (!e.checkVisibility() || !box.width || e.matches('.skip')) return false
    let inside = e.parentElement
    while (inside && !/auto|scroll|hidden/.test(getComputedStyle(inside).overflowX)) inside = inside.parentElement
    return (!inside || inside === document.body) && (box.right > innerWidth + 1 || box.left < -1)
  })
  const name = (e) => e.outerHTML.slice(0, 160)
  return { wide, cut: cut.map(name), beyond: beyond.map(name) }
}
"""

AXE = """
async () => {
  const { violations } = await axe.run(document, { resultTypes: ['violations'] })
  const told = (id) => ({ target, html, failureSummary }) => `${id} ${target}: ${html.slice(0, 200)} ${failureSummary}`
  return violations.flatMap(({ id, nodes }) => nodes.map(told(id)))
}
"""


@dataclass(frozen=True, slots=True)
class Ink:
    """Pixels of a colour in the area of a plot."""

    columns: list[tuple[float | None, float | None, int]]

    @property
    def n(self) -> int:
        """How many there are."""
        return sum(n for _, _, n in self.columns)

    def span(self, at: float, reach: float = 0.0) -> tuple[float, float] | None:
        """Return the lowest and the highest of those around a place, both as shares of the area; `None` without any."""
        n = len(self.columns)
        first, last = round((at - reach) * (n - 1)), round((at + reach) * (n - 1))
        there = [(low, high) for low, high, _ in self.columns[max(0, first) : last + 1] if low is not None]
        return (min(low for low, _ in there), max(high for _, high in there)) if there else None

    @property
    def height(self) -> float:
        """What share of the area's height it spans."""
        span = self.span(0.5, 0.5)
        return span[1] - span[0] if span else 0.0

    @property
    def width(self) -> float:
        """What share of the columns bears some."""
        return sum(n > 0 for _, _, n in self.columns) / len(self.columns)


def chart(page: Page, tag: str) -> Locator:
    """Return a tag's chart."""
    return page.get_by_role("article", name=tag, exact=True).first


def ink(within: Locator, color: tuple[int, int, int], near: int = 60) -> Ink:
    """Return where a colour is in the canvas of a chart."""
    canvas = within.locator("canvas").first
    if not canvas.count():
        return Ink([(None, None, 0)])
    return Ink([tuple(column) for column in canvas.evaluate(INK, [list(color), near])])


def drawn(within: Locator, color: tuple[int, int, int], *, n: int = 50) -> Ink:
    """Wait until a chart shows some of a colour."""
    return until(within.page, lambda: (found := ink(within, color)).n >= n and found)


def box_of(within: Locator) -> dict[str, float]:
    """Return where something is on the page, in pixels, once it is shown (new axes make a new chart)."""
    return until(within.page, within.bounding_box)


def color_of(page: Page, run: str) -> tuple[int, int, int]:
    """Return the colour that the page gave a run."""
    swatch = page.get_by_role("checkbox", name=f"Show {run}", exact=True).locator("svg").first
    found = swatch.evaluate("svg => getComputedStyle(svg).color")
    red, green, blue = map(int, re.findall(r"\d+", found)[:3])
    return red, green, blue


def has_url(page: Page, part: str) -> None:
    """Wait until the address holds something: it follows a moment later."""
    until(page, lambda: part in page.url)


def until(page: Page, condition: Callable[[], Any], what: object = "the condition") -> Any:
    """Wait for a fact, as `wait_until` does, while the page goes on."""
    return wait_until(condition, what, pause=lambda: page.wait_for_timeout(LOOK_MS))


def go_to(page: Page, place: str) -> None:
    """Show another place in the same tab, as a link in it would: all else is as by default."""
    # The address follows what is shown a moment later, so it may be this one already, without an event.
    page.evaluate("place => { location.hash = place; dispatchEvent(new HashChangeEvent('hashchange')) }", place)


def copied(page: Page, card: Locator, menu: str, item: str) -> str:
    """Choose an item of a card's menu that copies, and return what the clipboard then holds."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card.hover()
    card.get_by_role("button", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=item).click()
    expect(page.get_by_role("status").filter(has_text="copied").last).to_be_visible()
    return page.evaluate("navigator.clipboard.readText()")


def violations(page: Page) -> list[str]:
    """Return what axe-core finds, however minor."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(AXE)


def overflow(page: Page) -> list[str]:
    """Return what is wider than the window, or cut off in buttons."""
    found = page.evaluate(OVERFLOW)
    wide = ["the page is wider than its window"] if found["wide"] else []
    return wide + [f"cut off: {one}" for one in found["cut"]] + [f"beyond the edge: {one}" for one in found["beyond"]]
