// Lines, bands and marks, drawn with a pen: the canvas of a chart, or the text of an SVG file.

import type { Span } from './span'
import { lowerBound, nearest } from './bounds'
import type { LineStyle } from './palette'

export interface Line {
  id: string
  label: string
  style: LineStyle
  x: Float64Array
  y: Float64Array
  /** The raw line, drawn faintly below the smoothed one. */
  raw?: Float64Array
  low?: Float64Array
  high?: Float64Array
  /** How many lines a mean is of, at each x. */
  n?: ArrayLike<number>
  /** How many there are at all. */
  of?: number
  /** Points instead of a line. */
  points?: boolean
  /** On the right axis. */
  second?: boolean
  /** The digits of integers that are drawn rounded, by their places on x. */
  digits?: ReadonlyMap<number, string>
  /** How strong it is drawn, from 0 to 1. */
  alpha?: number
  /** Whether it stands back behind others that are selected. */
  faint?: boolean
  /** The id of the line that this is an earlier part of. */
  earlier?: string
  /** Whether other lines are parts of it. */
  inParts?: boolean
  /** A remark for the key. */
  state?: string
}

/** The point of a line that is nearest to x; -1 where there is none, as beside one part of a line. */
export function pointAt({ x, earlier, inParts }: Line, at: number): number {
  if ((earlier || inParts) && !(at >= x[0]! && at <= x[x.length - 1]!)) return -1
  return nearest(x, at)
}

/** The id that all parts of a line share. */
export const wholeOf = ({ id, earlier }: Line): string => earlier ?? id

/** Something that happened at x: a thin line with a flag on top. */
export interface Mark {
  x: number
  label: string
  /** By default that of the axes' text. */
  color?: string
  /** Whether it is a rule with its label beside it, instead of a flag. */
  written?: boolean
}

export interface Stroke {
  color: string
  width: number
  alpha: number
  dash?: number[]
}

/** Coordinates come flat: x, y, x, y …; NaN lifts the pen. */
export interface Pen {
  line: (points: number[], stroke: Stroke) => void
  area: (points: number[], color: string, alpha: number) => void
  /** A triangle that points up or down, or a cross for NaN. */
  mark: (x: number, y: number, kind: 'up' | 'down' | 'nan', color: string) => void
  /** Small text at the right of a place, or at its left. */
  text: (x: number, y: number, text: string, color: string, left: boolean) => void
}

export interface Scale {
  xs: Span
  ys: Span
  /** Of the axis at the right. */
  ys2?: Span
  xlog: boolean
  ylog: boolean
  left: number
  top: number
  width: number
  height: number
  /** Device pixels a CSS pixel. */
  ratio: number
}

export function project(scale: Scale, second = false): { x: (v: number) => number; y: (v: number) => number } {
  const along = ([low, high]: Span, log: boolean) => {
    if (!log) return (v: number) => (v - low) / (high - low)
    const [a, b] = [Math.log10(low), Math.log10(high)]
    return (v: number) => (v > 0 ? (Math.log10(v) - a) / (b - a) : NaN)
  }
  const [x, y] = [along(scale.xs, scale.xlog), along((second && scale.ys2) || scale.ys, scale.ylog)]
  return {
    x: (v) => scale.left + x(v) * scale.width,
    y: (v) => scale.top + (1 - y(v)) * scale.height,
  }
}

export function drawLines(pen: Pen, lines: readonly Line[], scale: Scale, highlight: string | null): void {
  const [first, second] = [project(scale), project(scale, true)]
  const to = (line: Line) => (line.second ? second : first)
  const seen = lines.map((line) => ({ line, from: lowerBound(line.x, scale.xs[0]) - 1, end: lowerBound(line.x, scale.xs[1]) + 1 }))
  const part = (line: Line, column: Float64Array, from: number, end: number) => path(line.x, column, from, end, to(line))
  for (const { line, from, end } of seen) {
    if (line.low && line.high) pen.area(band(line, from, end, to(line)), line.style.color, highlight === wholeOf(line) ? 0.3 : line.faint ? 0.06 : 0.17)
  }
  const dot = (points: readonly number[], stroke: { color: string; alpha: number }) => {
    const found = dots(points, scale.ratio)
    if (found.length) pen.line(found, { ...stroke, width: DOT })
  }
  const faded = (line: Line) => (highlight === null ? line.faint : highlight !== wholeOf(line))
  for (const { line, from, end } of seen) {
    if (!line.raw) continue
    const [points, stroke] = [part(line, line.raw, from, end), { color: line.style.color, alpha: faded(line) ? 0.12 : 0.25 }]
    pen.line(points, { ...stroke, width: 1 })
    dot(points, stroke)
  }
  // The selected ones are drawn above the others, and last that under the pointer.
  const rank = ({ line }: (typeof seen)[number]) => (wholeOf(line) === highlight ? 2 : line.faint ? 0 : 1)
  const order = [...seen].sort((a, b) => rank(a) - rank(b))
  for (const { line, from, end } of order) {
    const points = line.points ? spotsOf(line, from, end, to(line)) : part(line, line.y, from, end)
    const { color, dash } = line.style
    if (line.points) {
      const r = (highlight === wholeOf(line) ? 2.5 : 1.75) * scale.ratio
      pen.line(points.flatMap((value, i) => (i % 2 ? [] : [value - r, points[i + 1]!, value + r, points[i + 1]!, NaN, NaN])), { color, width: (2 * r) / scale.ratio, alpha: (faded(line) ? 0.2 : 0.8) * (line.alpha ?? 1) })
      continue
    }
    const alpha = (faded(line) ? (line.faint ? 0.2 : 0.4) : 1) * (line.alpha ?? 1)
    pen.line(points, { color, dash, width: highlight === wholeOf(line) ? 2.25 : end - from > scale.width ? 1.1 : 1.5, alpha })
    dot(points, { color, alpha })
  }
  for (const { line, from, end } of seen) drawOdd(pen, line, from, end, scale, first.x)
}

const FLAG = 4

/** CSS pixels that the label of a mark takes. */
const LABEL = 64

export function drawMarks(pen: Pen, marks: readonly Mark[], scale: Scale, ink: string): void {
  const { x } = project(scale)
  const [top, bottom, right] = [scale.top, scale.top + scale.height, scale.left + scale.width]
  let free = Infinity
  // The newest first: of labels that would cover each other, it is written.
  for (const { x: at, color = ink, label, written } of [...marks].reverse()) {
    const place = x(at)
    if (!(place >= scale.left && place <= right)) continue
    pen.line([place, top, place, bottom], written ? { color, width: 1, alpha: 0.8, dash: [4, 3] } : { color, width: 1, alpha: 0.75, dash: [2, 3] })
    if (!written) pen.mark(place, top + FLAG * scale.ratio, 'down', color)
    else if (place + LABEL * scale.ratio <= free) {
      free = place
      const left = place + LABEL * scale.ratio > right
      pen.text(place + (left ? -4 : 4) * scale.ratio, top + 10 * scale.ratio, label, color, left)
    }
  }
}

/** CSS pixels. */
const DOT = 4

/** Strokes in the places where a path is shorter than a pixel, as at a point between gaps: without them nothing is seen there. */
export function dots(points: readonly number[], ratio: number): number[] {
  const found: number[] = []
  let [n, left, right, top, bottom] = [0, 0, 0, 0, 0]
  for (let i = 0; i <= points.length; i += 2) {
    const [x, y] = [points[i]!, points[i + 1]!]
    if (Number.isFinite(x) && Number.isFinite(y)) {
      if (n++ === 0) [left, right, top, bottom] = [x, x, y, y]
      else [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)]
      continue
    }
    if (n > 0 && right - left < 1 && bottom - top < 1) found.push(left - (DOT / 2) * ratio, top, left + (DOT / 2) * ratio, top, NaN, NaN)
    n = 0
  }
  return found
}

type Project = ReturnType<typeof project>

/**
 * The places of a line. Of several in a row in one column of pixels the first, the lowest, the highest and the last: the
 * picture is the same, and takes a fraction of the time to paint.
 */
export function path(x: Float64Array, y: Float64Array, from: number, end: number, to: Project): number[] {
  const points: number[] = []
  // The places of the column that is being gathered, in their order: [first, lowest, highest, last].
  let [column, first, low, high, last] = [NaN, 0, 0, 0, 0]
  const emit = () => {
    if (Number.isNaN(column)) return
    const kept = low < high ? [first, low, high, last] : [first, high, low, last]
    for (let k = 0; k < 4; k++) if (k === 0 || kept[k] !== kept[k - 1]) points.push(to.x(x[kept[k]!]!), to.y(y[kept[k]!]!))
    column = NaN
  }
  for (let i = Math.max(0, from); i < Math.min(x.length, end); i++) {
    const [px, value] = [to.x(x[i]!), y[i]!]
    // Gaps, infinities and what has no place on a logarithmic axis lift the pen.
    if (!Number.isFinite(px) || !Number.isFinite(to.y(value))) {
      emit()
      points.push(px, to.y(value))
    } else if (Math.floor(px) === column) {
      if (value < y[low]!) low = i
      if (value > y[high]!) high = i
      last = i
    } else {
      emit()
      column = Math.floor(px)
      first = low = high = last = i
    }
  }
  emit()
  return points
}

/** The places of all points. */
function spotsOf({ x, y }: Line, from: number, end: number, to: Project): number[] {
  const points: number[] = []
  for (let i = Math.max(0, from); i < Math.min(x.length, end); i++) points.push(to.x(x[i]!), to.y(y[i]!))
  return points
}

function band({ x, low, high }: Line, from: number, end: number, to: Project): number[] {
  const points: number[] = []
  const [a, b] = [Math.max(0, from), Math.min(x.length, end)]
  for (let i = a; i < b; i++) if (Number.isFinite(high![i]!)) points.push(to.x(x[i]!), to.y(high![i]!))
  for (let i = b - 1; i >= a; i--) if (Number.isFinite(low![i]!)) points.push(to.x(x[i]!), to.y(low![i]!))
  return points
}

/** NaN and infinities stand at the edge of the chart; of those of a kind that would cover each other, one is drawn. */
function drawOdd(pen: Pen, line: Line, from: number, end: number, scale: Scale, x: (v: number) => number): void {
  const values = line.raw ?? line.y
  const last = { nan: -Infinity, up: -Infinity, down: -Infinity }
  for (let i = Math.max(0, from); i < Math.min(line.x.length, end); i++) {
    const value = values[i]!
    if (Number.isFinite(value)) continue
    const place = x(line.x[i]!)
    const kind = Number.isNaN(value) ? 'nan' : value > 0 ? 'up' : 'down'
    if (place < scale.left || place > scale.left + scale.width || place - last[kind] < 5 * scale.ratio) continue
    last[kind] = place
    const y = kind === 'up' ? scale.top + 6 * scale.ratio : scale.top + scale.height - 6 * scale.ratio
    pen.mark(place, y, kind, line.style.color)
  }
}
