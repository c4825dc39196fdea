// The lines of a chart, of what came of several streams.

import { extentOf, lowerBound } from './bounds'
import type { Line, Mark } from './draw'
import type { LineStyle } from './palette'
import { styleOf } from './palette'
import { fading, goingOn, lineOfPart, partsOf as partsOfPasses, passesOf } from './passes'
import type { Columns, Records } from './records'
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
/** The label of a restart, in charts and tables. */
export const RESTARTED = 'restarted'

/** The lines of several streams over steps or time; `seen` is the visible range of x. */
export function linesOf(all: readonly Series[], options: ViewOptions, seen: Span | null): Line[] {
  const places = placesOf(all, options)
  if (options.frames) {
    const lines: Line[] = []
    for (const series of all) lines.push(...frameLines(series, options, lines.length, places))
    return lines
  }
  const parts: Part[] = []
  for (const series of all) parts.push(...partsOf(series, options, all.length === 1, parts.filter(({ line }) => !line.earlier).length))
  const [low, high] = seen ?? extentOf(parts.map(({ x, from, end }) => x.subarray(from, end)), false) ?? [0, 0]
  return parts.map((part) => lineOf(part, options, seen, high - low))
}

/** Where runs began again, on x. */
export function restartsOf(all: readonly Series[], options: ViewOptions): Mark[] {
  const found = new Set<number>()
  for (const { records, started } of options.frames ? [] : all) {
    const { numbers, lines } = records
    const { step, wall, index } = numbers
    const line = index.length ? [step, wall, index] : lines.values().next().value?.columns
    if (!line || !records.restarts.length) continue
    const [x, origin] = placesIn(line[0]!, line[1]!, line[2]!, started, options)
    for (const restart of records.restarts) {
      const at = x[lowerBound(line[2]!, restart)]
      if (at !== undefined && Number.isFinite(at)) found.add(at - origin)
    }
  }
  return [...found].sort((a, b) => a - b).map((x) => ({ x, label: RESTARTED, written: true }))
}

/** The column of x, and what is subtracted from it. */
function placesIn(step: Float64Array, wall: Float64Array, index: Float64Array, started: number | null, { x }: ViewOptions): [Float64Array, number] {
  if (x === 'relative') return [goingOn(wall), started ?? wall[0] ?? 0]
  return [{ step, wall, index }[x] ?? step, 0]
}

/** A line, or a part of one, before it is smoothed and thinned: its columns in the order of x, and the rows that are drawn. */
interface Part {
  line: Pick<Line, 'id' | 'label' | 'style' | 'second' | 'alpha' | 'earlier' | 'inParts' | 'state'>
  x: Float64Array
  values: Float64Array[]
  means?: Float64Array | undefined
  from: number
  end: number
}

function partsOf(series: Series, options: ViewOptions, single: boolean, n_before: number): Part[] {
  const { records, id, label, style, second } = series
  const { step, wall, index, y } = records.numbers
  const found: Part[] = []
  const add = (line: Part['line'], name: string, columns: Float64Array[], one: Pick<Columns, 'n_thinned' | 'means'>) => {
    const means = options.smooth > 0 ? one.means : undefined
    found.push(...placed({ ...line, ...(second && { second }) }, series, { name, columns, means, n_thinned: one.n_thinned }, options))
  }
  if (y.length) add({ id, label, style }, NUMBERS, [step, wall, index, y], records)
  let k = 0
  for (const [name, one] of records.lines) {
    const { columns } = one
    const plain = styleOf(n_before + k, Math.floor((n_before + k) / 8))
    if (!name && y.length) continue
    add(name ? { id: `${id} ${name}`, label: single ? name : `${label} · ${name}`, style: single || k > 0 ? plain : style } : { id, label: `${label} (median, 10–90 %)`, style }, name, columns, one)
    k++
  }
  return found
}

/** No name of a line: names come from mappings, where this cannot stand. */
const NUMBERS = '\0'

interface Held {
  name: string
  columns: Float64Array[]
  means: Float64Array | undefined
  n_thinned: number
}

/** The parts of a line: one, if its run did not begin again and its steps do not go back. */
function placed(line: Part['line'], { records, started }: Series, { name, columns, means, n_thinned }: Held, options: ViewOptions): Part[] {
  const [step, wall, index, ...plain] = columns as [Float64Array, Float64Array, Float64Array, ...Float64Array[]]
  const [at, origin] = placesIn(step, wall, index, started, options)
  const restarts = records.restarts.map((restart) => lowerBound(index, restart))
  const passes = passesOf(at, restarts, options.x === 'step' || options.x === 'wall')
  const parts = passes && passes.length > 1 && at.every(Number.isFinite) ? partsOfPasses(at, passes, options.history) : null
  const first = options.last > 0 ? Math.max(0, at.length - options.last) : 0
  if (!parts) {
    const { x, values } = prepared(records, name, options.x, { x: at, origin, values: plain, n_thinned })
    // Means are those between neighbours as they came, and not in another order.
    return [{ line, x, values, means: values === plain ? means : undefined, from: first, end: x.length }]
  }
  const faint = parts.some(({ alpha }) => alpha < 1)
  const made = passes!.map(({ start, end }) => ({
    x: origin ? at.subarray(start, end).map((value) => value - origin) : at.subarray(start, end),
    values: plain.map((column) => column.subarray(start, end)),
    means: means?.subarray(start, end),
  }))
  return parts.flatMap((part, i): Part[] => {
    const before = passes![part.pass]!.start
    const newest = i === parts.length - 1
    const rows = { ...made[part.pass]!, from: Math.max(part.start, first) - before, end: part.end - before }
    return newest || rows.from < rows.end ? [{ ...rows, line: lineOfPart(line, part, newest, faint) }] : []
  })
}

/** Smoothed before anything is left out, so that the line does not depend on what is drawn. */
function lineOf({ line, x, values, means, from: first, end: last }: Part, options: ViewOptions, seen: Span | null, extent: number): Line {
  let [from, end] = [first, last]
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
    return { ...line, x: part(x, places), y: part(smooth(x, middle, options.smooth, extent, means), places), low: part(low, places), high: part(high, places) }
  }
  const y = values[0]!
  const places = kept(y)
  return { ...line, x: part(x, places), y: part(smooth(x, y, options.smooth, extent, means), places), ...(options.smooth > 0 && (line.alpha ?? 1) === 1 && { raw: part(y, places) }) }
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

export { fading }
