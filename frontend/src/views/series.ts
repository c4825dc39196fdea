// The lines of a chart, of what came of several streams.

import { extentOf, lowerBound } from './bounds'
import type { Line } from './draw'
import type { LineStyle } from './palette'
import { styleOf } from './palette'
import type { Records } from './records'
import { prepared } from './prepared'
import { smooth } from './smooth'
import type { Span } from './span'
import { joined, keptIn, MAX_DRAWN, picked } from './thin'
import { barsOf, namedNumbers } from './values'

export const X_KINDS = ['step', 'relative', 'wall', 'index'] as const
export type XKind = (typeof X_KINDS)[number]

export interface ViewOptions {
  x: XKind
  /** The name of x, if the step column holds another step track or observable. */
  xname: string
  smooth: number
  xlog: boolean
  ylog: boolean
  /** The range of an axis; null for the range of the data. */
  xlimits: Span | null
  ylimits: Span | null
  /** Leave the most extreme hundredth at each end out of the range of y. */
  clip: boolean
  /** Each record is one complete frame; older frames are drawn behind it. */
  frames: boolean
  /** How many older ones. */
  history: number
  /** How histograms stand over the steps. */
  over: 'latest' | 'ridge' | 'heat'
  /** Show only this many of the newest; 0 shows all. */
  last: number
}

export const STANDARD: ViewOptions = { x: 'step', xname: '', smooth: 0, xlog: false, ylog: false, xlimits: null, ylimits: null, clip: false, frames: false, history: 10, over: 'ridge', last: 0 }

/** One stream in a view. */
export interface Series {
  id: string
  label: string
  style: LineStyle
  records: Records
  /** The start of its run in seconds, for relative times; null if unknown. */
  started: number | null
  /** On the right axis. */
  second: boolean
}

const MAX_FRAMES = 100

/** The lines of several streams over steps or time; `seen` is the visible range of x. */
export function linesOf(all: readonly Series[], options: ViewOptions, seen: Span | null): Line[] {
  const places = placesOf(all, options)
  if (options.frames) {
    const lines: Line[] = []
    for (const series of all) lines.push(...frameLines(series, options, lines.length, places))
    return lines
  }
  const parts: Part[] = []
  for (const series of all) parts.push(...partsOf(series, options, all.length === 1, parts.length))
  const [low, high] = seen ?? extentOf(parts.map(({ x, from }) => x.subarray(from)), false) ?? [0, 0]
  return parts.map((part) => lineOf(part, options, seen, high - low))
}

/** A line before it is smoothed and thinned: its columns in the order of x, drawn from a place on. */
interface Part {
  line: Pick<Line, 'id' | 'label' | 'style' | 'second'>
  x: Float64Array
  values: Float64Array[]
  from: number
}

function partsOf(series: Series, options: ViewOptions, single: boolean, n_before: number): Part[] {
  const { records, id, label, style, second } = series
  const { step, wall, index, y } = records.numbers
  const found: Part[] = []
  const add = (line: Part['line'], name: string, columns: Float64Array[], n_thinned: number) =>
    found.push({ line: { ...line, ...(second && { second }) }, ...placed(series, name, columns, n_thinned, options) })
  if (y.length) add({ id, label, style }, NUMBERS, [step, wall, index, y], records.n_thinned)
  let k = 0
  for (const [name, { columns, n_thinned }] of records.lines) {
    const plain = styleOf(n_before + k, Math.floor((n_before + k) / 8))
    if (!name && y.length) continue
    add(name ? { id: `${id} ${name}`, label: single ? name : `${label} · ${name}`, style: single || k > 0 ? plain : style } : { id, label: `${label} (median, 10–90 %)`, style }, name, columns, n_thinned)
    k++
  }
  return found
}

/** No name of a line: names come from mappings, where this cannot stand. */
const NUMBERS = '\0'

function placed({ records, started }: Series, name: string, columns: Float64Array[], n_thinned: number, options: ViewOptions): Omit<Part, 'line'> {
  const [step, wall, index, ...plain] = columns as [Float64Array, Float64Array, Float64Array, ...Float64Array[]]
  const at = { step, wall, index, relative: wall }[options.x] ?? step
  const origin = options.x === 'relative' ? (started ?? wall[0] ?? 0) : 0
  const { x, values } = prepared(records, name, options.x, { x: at, origin, values: plain, n_thinned })
  return { x, values, from: options.last > 0 ? Math.max(0, x.length - options.last) : 0 }
}

/** Smoothed before anything is left out, so that the line does not depend on what is drawn. */
function lineOf({ line, x, values, from: first }: Part, options: ViewOptions, seen: Span | null, extent: number): Line {
  let [from, end] = [first, x.length]
  if (seen) [from, end] = [Math.max(from, lowerBound(x, seen[0]) - 1), Math.min(end, lowerBound(x, seen[1]) + 1)]
  if (end < from) end = from
  // On a logarithmic axis nothing that is not above zero has a place.
  const low = options.xlog ? Math.min(end, Math.max(from, lowerBound(x, Number.MIN_VALUE))) : from
  const span: Span = seen ?? [x[low] ?? 0, x[end - 1] ?? 1]
  const kept = (column: Float64Array) => keptIn(x, column, from, end, span, options.xlog)
  const part = (column: Float64Array, places: number[] | null) => (places ? picked(column, places) : column.subarray(from, end))
  if (values.length === 3) {
    const [low, middle, high] = values as [Float64Array, Float64Array, Float64Array]
    const lows = kept(low)
    const places = lows && joined(lows, kept(high)!)
    return { ...line, x: part(x, places), y: part(smooth(x, middle, options.smooth, extent), places), low: part(low, places), high: part(high, places) }
  }
  const y = values[0]!
  const places = kept(y)
  return { ...line, x: part(x, places), y: part(smooth(x, y, options.smooth, extent), places), ...(options.smooth > 0 && { raw: part(y, places) }) }
}

/** The names along x of frames of mappings: those of the newest frame of each stream; undefined where there are none. */
export function placesOf(all: readonly Series[], options: ViewOptions): string[] | undefined {
  if (!options.frames) return undefined
  const names = new Set<string>()
  for (const { records } of all) for (const [name] of namedNumbers(records.values.at(-1)?.value)) names.add(name)
  return names.size ? [...names].slice(0, MAX_DRAWN) : undefined
}

/** Every record a line of its own, over the places in it: the newest in full colour, older ones fading. */
function frameLines({ records, id, label, style, second }: Series, { history }: ViewOptions, n_before: number, places?: readonly string[]): Line[] {
  const frames = records.values.flatMap(({ step, value }) => {
    const bars = barsOf(value)
    if (!bars) return []
    if (!places) return [{ step, y: Float64Array.from(bars.values.slice(0, MAX_DRAWN)) }]
    const found = new Map(bars.names.map((name, i) => [name, bars.values[i]!]))
    return [{ step, y: Float64Array.from(places, (name) => found.get(name) ?? NaN) }]
  })
  const shown = frames.slice(-1 - Math.min(history, MAX_FRAMES))
  return shown.map(({ step, y }, i) => ({
    id: `${id} ${n_before + i}`,
    label: `${label}, step ${step}`,
    style,
    alpha: fading(shown.length - 1 - i, shown.length),
    x: Float64Array.from(y.keys()),
    y,
    ...(second && { second }),
  }))
}

/** How strong a frame is drawn: the newest in full, the oldest faint. */
export const fading = (age: number, n: number): number => (age === 0 ? 1 : 0.12 + 0.38 * (1 - age / n))
