// The theme's colours, for what is drawn on a canvas.

import type { Ink } from './plot'

export function readInk(): Ink {
  const style = getComputedStyle(document.documentElement)
  const of = (name: string) => style.getPropertyValue(name).trim()
  return { axis: of('--line-strong'), grid: of('--grid'), text: of('--muted'), ground: of('--surface'), mark: of('--accent') }
}
