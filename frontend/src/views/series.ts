// The lines of a chart, of what came of several streams.

import { lowerBound } from './bounds'
import type { Line } from './draw'
import type { LineStyle } from './palette'
import { styleOf } from './palette'
import type { Records } from './records'
import { smooth } from './smooth'
import type { Span } from './span'
import { barsOf } from './values'

export const X_KINDS = ['step', 'relative', 'wall', 'index'] as const
export type XKind = (typeof X_KINDS)[number]

export interface ViewOptions {
  x: XKind
  smooth: number
  xlog: boolean
  ylog: boolean
  /** Each record is one complete frame, with older ones behind it. */
  frames: boolean
  /** How many older ones. */
  history: number
  /** How histograms stand over the steps. */
  over: 'latest' | 'ridge' | 'heat'
  /** Only so many of the newest; 0 is all. */
  last: number
}

export const STANDARD: ViewOptions = { x: 'step', smooth: 0, xlog: false, ylog: false, frames: false, history: 10, over: 'ridge', last: 0 }

/** One stream in a view. */
export interface Series {
  id: string
  label: string
  style: LineStyle
  records: Records
  /** When its run began, for times relative to it, in seconds; null where nobody knows. */
  started: number | null
  /** Read on the axis at the right. */
  second: boolean
}

const MAX_DRAWN = 4_000
const MAX_FRAMES = 100

/** The lines of several streams over the steps, or the time; `seen` is what of x is in view. */
export function linesOf(all: readonly Series[], options: ViewOptions, seen: Span | null): Line[] {
  const lines: Line[] = []
  for (const series of all) {
    if (options.frames) lines.push(...frameLines(series, options, lines.length))
    else lines.push(...seriesLines(series, options, seen, all.length === 1, lines.length))
  }
  return lines
}

function seriesLines(series: Series, options: ViewOptions, seen: Span | null, single: boolean, n_before: number): Line[] {
  const { records, id, label, style, second } = series
  const { step, wall, index, y } = records.numbers
  const found: Line[] = []
  if (y.length) found.push(one({ ...series, columns: [step, wall, index, y] }, options, seen))
  let k = 0
  for (const [name, columns] of records.lines) {
    const plain = styleOf(n_before + k, Math.floor((n_before + k) / 8))
    const named = name ? { id: `${id} ${name}`, label: single ? name : `${label} · ${name}`, style: single || k > 0 ? plain : style } : { id, label: `${label} (median, 10–90 %)`, style }
    if (!name && y.length) continue
    found.push(one({ ...series, ...named, second, columns: columns.columns }, options, seen))
    k++
  }
  return found
}

interface Drawn extends Series {
  columns: Float64Array[]
}

function one(drawn: Drawn, options: ViewOptions, seen: Span | null): Line {
  const { id, label, style, second, columns } = drawn
  const [step, wall, index] = columns as [Float64Array, Float64Array, Float64Array]
  const whole = xOf(options.x, step, wall, index, drawn.started)
  const order = orderOf(whole)
  const sorted = (column: Float64Array) => (order ? Float64Array.from(order, (i) => column[i]!) : column)
  const x = sorted(whole)
  let [from, end] = [options.last > 0 ? Math.max(0, x.length - options.last) : 0, x.length]
  if (seen) [from, end] = [Math.max(from, lowerBound(x, seen[0]) - 1), Math.min(end, lowerBound(x, seen[1]) + 1)]
  const values = columns.slice(3).map((column) => sorted(column).subarray(from, end))
  const line = { id, label, style, ...(second && { second }) }
  if (values.length === 3) {
    const [low, middle, high] = values as [Float64Array, Float64Array, Float64Array]
    return { ...line, x: x.subarray(from, end), y: smooth(middle, options.smooth), low, high }
  }
  const y = values[0]!
  const part = x.subarray(from, end)
  const kept = drawnOf(y, MAX_DRAWN)
  if (options.smooth <= 0) return { ...line, x: picked(part, kept), y: picked(y, kept) }
  return { ...line, x: picked(part, kept), y: picked(smooth(y, options.smooth), kept), raw: picked(y, kept) }
}

function xOf(kind: XKind, step: Float64Array, wall: Float64Array, index: Float64Array, started: number | null): Float64Array {
  if (kind === 'index') return index
  if (kind === 'step') return step
  if (kind === 'wall') return wall
  const origin = started ?? wall[0] ?? 0
  return wall.map((at) => at - origin)
}

/** The order by x; null where it is in order already. */
function orderOf(x: Float64Array): number[] | null {
  for (let i = 1; i < x.length; i++) {
    if (x[i]! < x[i - 1]!) return Array.from(x.keys()).sort((a, b) => x[a]! - x[b]! || a - b)
  }
  return null
}

/** The places of at most `max` points that show what all would: of each run the smallest, the largest, and what is odd. */
export function drawnOf(y: Float64Array, max: number): Uint32Array | null {
  if (y.length <= max) return null
  const width = Math.ceil((3 * y.length) / max)
  const kept: number[] = []
  for (let from = 0; from < y.length; from += width) {
    let [low, high, odd] = [from, from, -1]
    for (let i = from; i < Math.min(from + width, y.length); i++) {
      if (!Number.isFinite(y[i]!)) odd = i
      else {
        if (!(y[i]! >= y[low]!)) low = i
        if (!(y[i]! <= y[high]!)) high = i
      }
    }
    const places = new Set([low, high, odd].filter((i) => i >= 0))
    kept.push(...[...places].sort((a, b) => a - b))
  }
  return Uint32Array.from(kept)
}

const picked = (column: Float64Array, kept: Uint32Array | null): Float64Array => (kept ? Float64Array.from(kept, (i) => column[i]!) : column)

/** Every record a line of its own, over the places in it: the newest in full colour, older ones fading. */
function frameLines({ records, id, label, style, second }: Series, { history }: ViewOptions, n_before: number): Line[] {
  const frames = records.values.flatMap(({ step, value }) => {
    const bars = barsOf(value)
    return bars ? [{ step, y: Float64Array.from(bars.values.slice(0, MAX_DRAWN)) }] : []
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
