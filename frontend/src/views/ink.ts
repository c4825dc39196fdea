// The theme's colours, for canvases.

export interface Ink {
  axis: string
  grid: string
  text: string
  ground: string
  mark: string
}

export function readInk(root: Element = document.documentElement): Ink {
  const style = getComputedStyle(root)
  const of = (name: string) => style.getPropertyValue(name).trim()
  return { axis: of('--line-strong'), grid: of('--grid'), text: of('--muted'), ground: of('--surface'), mark: of('--accent') }
}
