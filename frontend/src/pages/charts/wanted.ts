// The lines of a chart, from the visible runs, its tags, and the loaded series.

import type { Scalars } from '../../data/types'
import type { Line, Mark } from '../../views/draw'
import { meanOf, type BandKind } from '../../views/group'
import { DASHES, LINES, styleOf, type LineStyle } from '../../views/palette'
import { lineOfPart } from '../../views/passes'
import { RESTARTED } from '../../views/series'
import { smooth } from '../../views/smooth'

export interface Drawn {
  id: string
  label: string
  style: LineStyle
  runs: string[]
  /** Whether others are selected. */
  faint?: boolean
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
  const of = (tag: string) => {
    const known = having(tag)
    return all.map((one) => ({ ...one, tag, runs: one.runs.filter((key) => known?.has(key)) })).filter(({ runs }) => runs.length)
  }
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

/** The line of one entry from the series that have come so far, in parts where its run began again. */
export function linesOf({ id, label, style, faint }: Drawn, series: readonly Scalars[], { weight, extent, band }: LineOptions): Line[] {
  if (series.length === 0) return []
  if (series.length === 1) return partsOf({ id, label, style, ...(faint && { faint }) }, series[0]!, weight, extent)
  const sorted = series.map(inOrder)
  const mean = meanOf(sorted.map((data) => ({ x: data.x, y: smooth(data.x, data.y, weight, extent, data.mean) })), band)
  const raw = weight > 0 ? meanOf(sorted, 'none').y : undefined
  return [{ id, label, style, ...(faint && { faint }), x: mean.x, y: mean.y, raw, n: mean.n, ...(band === 'none' ? {} : { low: mean.low, high: mean.high }) }]
}

/** The lines of the parts of a series, each pass smoothed by itself. */
function partsOf(line: Pick<Line, 'id' | 'label' | 'style' | 'faint'>, { x, y, mean, parts }: Scalars, weight: number, extent: number): Line[] {
  if (parts.length === 1) return [{ ...line, x, y: smooth(x, y, weight, extent, mean), raw: weight > 0 ? y : undefined }]
  const faint = parts.some(({ alpha }) => alpha < 1)
  return parts.map((part, i) => {
    const pass = parts.filter((one) => one.pass === part.pass)
    const [from, end] = [Math.min(...pass.map(({ start }) => start)), Math.max(...pass.map((one) => one.end))]
    const smoothed = smooth(x.subarray(from, end), y.subarray(from, end), weight, extent, mean?.subarray(from, end))
    const of = (column: Float64Array) => column.subarray(part.start, part.end)
    return { ...lineOfPart(line, part, i === parts.length - 1, faint), x: of(x), y: smoothed.subarray(part.start - from, part.end - from), raw: weight > 0 && part.alpha === 1 ? of(y) : undefined }
  })
}

/** A series in the order of x, whose values are looked up. */
function inOrder(series: Scalars): Pick<Scalars, 'x' | 'y' | 'mean'> {
  if (series.parts.length === 1) return series
  const { x, y } = series
  const order = Array.from(x.keys()).sort((a, b) => x[a]! - x[b]! || a - b)
  const by = (column: Float64Array) => Float64Array.from(order, (i) => column[i]!)
  // Means are those between neighbours as they came.
  return { x: by(x), y: by(y), mean: undefined }
}

/** Where runs began again. */
export function restartsOf(series: readonly Scalars[]): Mark[] {
  const places = new Set(series.flatMap(({ restarts }) => restarts))
  return [...places].sort((a, b) => a - b).map((x) => ({ x, label: RESTARTED, written: true }))
}
