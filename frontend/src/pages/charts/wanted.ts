// The lines of a chart, from the visible runs, its tags, and the loaded series.

import type { Scalars } from '../../data/types'
import type { Line, Mark } from '../../views/draw'
import { meanOf, type BandKind } from '../../views/group'
import { DASHES, LINES, styleOf, type LineStyle } from '../../views/palette'
import { lineOfPart } from '../../views/passes'
import { RESTARTED } from '../../views/series'
import { smooth, smoothByPoint } from '../../views/smooth'

export interface Drawn {
  id: string
  label: string
  style: LineStyle
  /** The part of the chart that it is drawn in; empty where charts are not divided. */
  facet?: string
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
    // What no run has as a tag is an expression, which each may answer.
    return all.map((one) => ({ ...one, tag, runs: known ? one.runs.filter((key) => known.has(key)) : one.runs })).filter(({ runs }) => runs.length)
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
  /** Whether each point weighs the same, as in TensorBoard. */
  byPoint?: boolean
  band: BandKind
  points?: boolean
}

/** The line of one entry from the series that have come so far, in parts where its run began again. */
export function linesOf({ id, label, style, faint }: Drawn, series: readonly Scalars[], options: LineOptions): Line[] {
  const { weight, band, points = false } = options
  if (series.length === 0) return []
  const line = { id, label, style, ...(faint && { faint }) }
  if (points) return series.map(inOrder).map(({ x, y }, i) => ({ ...line, points, x, y, ...(i > 0 && { id: `${id} ${i}`, earlier: id }) }))
  if (series.length === 1) return partsOf(line, series[0]!, options)
  const sorted = series.map(inOrder)
  const mean = meanOf(sorted.map((data) => ({ x: data.x, y: smoothed(data, options) })), band)
  const raw = weight > 0 ? meanOf(sorted, 'none').y : undefined
  const whole = { ...line, x: mean.x, y: mean.y, raw, n: mean.n, ...(band === 'none' ? {} : { low: mean.low, high: mean.high }) }
  return meanParts(whole, sorted.map(({ x }) => x))
}

const smoothed = ({ x, y, mean }: Pick<Scalars, 'x' | 'y' | 'mean'>, { weight, extent, byPoint = false }: LineOptions): Float64Array =>
  byPoint ? smoothByPoint(y, weight, mean) : smooth(x, y, weight, extent, mean)

/** How a mean is drawn where some of its runs have begun later or ended. */
const OF_SOME = [2, 3]

/**
 * The parts of a mean: where all runs are, and, dashed, where only some are. Between them nothing is drawn: the mean does
 * not go from one to the other, other runs are in it.
 */
function meanParts(line: Line, columns: readonly Float64Array[]): Line[] {
  const spans = columns.flatMap((x) => (x.length ? [[x[0]!, x[x.length - 1]!] as const] : []))
  const of = spans.length
  const parts: { start: number; end: number; n: number }[] = []
  let before = ''
  for (let i = 0; i < line.x.length; i++) {
    const at = line.x[i]!
    const [begun, ended] = [spans.filter(([low]) => low <= at).length, spans.filter(([, high]) => high < at).length]
    const now = `${begun} ${ended}`
    if (now === before) parts[parts.length - 1]!.end = i + 1
    else parts.push({ start: i, end: i + 1, n: begun - ended })
    before = now
  }
  if (parts.length <= 1) return [{ ...line, of }]
  const main = parts.reduce((best, part) => (part.n > best.n || (part.n === best.n && part.end - part.start > best.end - best.start) ? part : best))
  return parts.map((part): Line => {
    const cut = (column: Float64Array) => column.subarray(part.start, part.end)
    const { x, y, raw, low, high, n } = line
    const here = { ...line, of, x: cut(x), y: cut(y), ...(raw && { raw: cut(raw) }), ...(low && high && { low: cut(low), high: cut(high) }), n: Array.from(n!).slice(part.start, part.end) }
    const some = part.n < of && { style: { ...line.style, dash: OF_SOME } }
    return part === main ? { ...here, ...some, inParts: true } : { ...here, ...some, id: `${line.id} ${part.start}`, earlier: line.id }
  }).sort((a, b) => Number(!a.earlier) - Number(!b.earlier))
}

/** The lines of the parts of a series, each pass smoothed by itself. */
function partsOf(given: Pick<Line, 'id' | 'label' | 'style' | 'faint'>, { x, y, mean, parts, integers }: Scalars, options: LineOptions): Line[] {
  const { weight } = options
  const line = { ...given, ...(integers && { digits: new Map(Array.from(integers, ([i, digits]) => [x[i]!, digits])) }) }
  if (parts.length === 1) return [{ ...line, x, y: smoothed({ x, y, mean }, options), raw: weight > 0 ? y : undefined }]
  const faint = parts.some(({ alpha }) => alpha < 1)
  return parts.map((part, i) => {
    const pass = parts.filter((one) => one.pass === part.pass)
    const [from, end] = [Math.min(...pass.map(({ start }) => start)), Math.max(...pass.map((one) => one.end))]
    const whole = smoothed({ x: x.subarray(from, end), y: y.subarray(from, end), mean: mean?.subarray(from, end) }, options)
    const of = (column: Float64Array) => column.subarray(part.start, part.end)
    return { ...lineOfPart(line, part, i === parts.length - 1, faint), x: of(x), y: whole.subarray(part.start - from, part.end - from), raw: weight > 0 && part.alpha === 1 ? of(y) : undefined }
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
