// The lines of a chart, from the visible runs, its tags, and the loaded series.

import type { Scalars } from '../../data/types'
import type { Line } from '../../views/draw'
import { meanOf, type BandKind } from '../../views/group'
import { DASHES, LINES, styleOf, type LineStyle } from '../../views/palette'
import { smooth } from '../../views/smooth'

export interface Drawn {
  id: string
  label: string
  style: LineStyle
  runs: string[]
}

export interface Wanted extends Drawn {
  tag: string
}

/** The styles of a chart's tags: a dash for each, and, if only one run is visible, a colour too. */
export function styleOfTag(place: number, alone: boolean): LineStyle {
  if (alone) return styleOf(place, Math.floor(place / LINES.length))
  return { color: 'var(--muted)', dash: DASHES[place % DASHES.length]! }
}

/** The lines of a chart with these tags, out of all lines. */
export function wantedOf(tags: readonly string[], all: readonly Drawn[], having: (tag: string) => ReadonlySet<string> | undefined): Wanted[] {
  const of = (tag: string) => all.map((one) => ({ ...one, tag, runs: one.runs.filter((key) => having(tag)?.has(key)) })).filter(({ runs }) => runs.length)
  if (tags.length === 1) return of(tags[0]!)
  const alone = all.length === 1
  return tags.flatMap((tag, i) =>
    of(tag).map((one) => ({
      ...one,
      id: JSON.stringify([tag, one.id]),
      label: alone ? tag : `${one.label} · ${tag}`,
      style: { ...styleOfTag(i, alone), ...(!alone && { color: one.style.color }) },
    })),
  )
}

export interface LineOptions {
  /** Of smoothing, and the length of the visible x axis that it is relative to. */
  weight: number
  extent: number
  band: BandKind
}

/** The line of one entry from the series that have come so far; null while none has. */
export function lineOf({ id, label, style }: Drawn, series: readonly Scalars[], { weight, extent, band }: LineOptions): Line | null {
  if (series.length === 0) return null
  if (series.length === 1) {
    const { x, y } = series[0]!
    return { id, label, style, x, y: smooth(x, y, weight, extent), raw: weight > 0 ? y : undefined }
  }
  const mean = meanOf(series.map((data) => ({ x: data.x, y: smooth(data.x, data.y, weight, extent) })), band)
  const raw = weight > 0 ? meanOf(series, 'none').y : undefined
  return { id, label, style, x: mean.x, y: mean.y, raw, n: mean.n, ...(band === 'none' ? {} : { low: mean.low, high: mean.high }) }
}
