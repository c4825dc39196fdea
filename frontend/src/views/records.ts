// The records of one stream for views: numbers in growing columns, of other values the latest few.
// Memory is bounded: full columns are thinned to half, keeping extremes; old values are dropped.

import { bandOf, named, noteOf, pointOf, sizeOf } from './values'

export const MAX_POINTS = 16_384
export const MAX_LINE_POINTS = 4_096
export const MAX_LINES = 64
export const MAX_VALUES = 256
export const MAX_VALUE_BYTES = 32 * 2 ** 20
export const MAX_NOTES = 300

/** Records as they arrive: columns, and either numbers or values of any kind. */
export interface Batch {
  step: Float64Array
  wall: Float64Array
  index: Float64Array
  y?: Float64Array
  values?: unknown[]
}

export interface Numbers {
  step: Float64Array
  wall: Float64Array
  index: Float64Array
  y: Float64Array
}

export interface Value {
  index: number
  step: number
  wall: number
  value: unknown
}

export interface Note {
  x: number
  y: number
  text: string
}

/** Columns of one length that grow in place; the last one decides which rows stay when they are thinned. */
export class Columns {
  n = 0
  n_seen = 0
  n_thinned = 0
  private data: Float64Array[]

  constructor(
    n_columns: number,
    private max = MAX_POINTS,
  ) {
    this.data = Array.from({ length: n_columns }, () => new Float64Array(256))
  }

  /** Hold no more than this from now on. */
  limit(max: number): void {
    this.max = max
  }

  push(...row: number[]): void {
    this.room(1)
    for (let k = 0; k < row.length; k++) this.data[k]![this.n] = row[k]!
    this.n++
    this.n_seen++
  }

  /** Take in many rows at once: all of some columns from a place on. */
  append(columns: readonly Float64Array[], from: number): void {
    const length = columns[0]!.length
    for (let at = from; at < length; ) {
      this.room(length - at)
      const n = Math.min(length - at, this.max - this.n)
      columns.forEach((column, k) => this.data[k]!.set(column.subarray(at, at + n), this.n))
      this.n += n
      this.n_seen += n
      at += n
    }
  }

  /** The present columns; later pushes do not change them. */
  get columns(): Float64Array[] {
    return this.data.map((column) => column.subarray(0, this.n))
  }

  /** Make room for at least one row, and for `n` where there may be so many. */
  private room(n: number): void {
    while (this.n >= this.max) this.thin()
    const length = this.data[0]!.length
    if (this.n + n <= length || length >= this.max) return
    const next = Math.min(this.max, Math.max(2 * length, this.n + n))
    this.data = this.data.map((column) => grown(column, next))
  }

  private thin(): void {
    const kept = keptOf(this.data[this.data.length - 1]!.subarray(0, this.n))
    const length = Math.min(this.max, this.data[0]!.length)
    this.data = this.data.map((column) => {
      const next = new Float64Array(Math.max(length, kept.length))
      kept.forEach((from, to) => (next[to] = column[from]!))
      return next
    })
    this.n = kept.length
    this.n_thinned++
  }
}

function grown(column: Float64Array, length: number): Float64Array {
  const next = new Float64Array(length)
  next.set(column)
  return next
}

/** The smallest and largest of every four neighbours, in order; NaN counts as the most extreme. */
export function keptOf(y: Float64Array): number[] {
  const kept: number[] = []
  for (let i = 0; i < y.length; i += 4) {
    let [low, high] = [i, i]
    for (let j = i; j < Math.min(i + 4, y.length); j++) {
      if (!Number.isNaN(y[low]!) && !(y[j]! >= y[low]!)) low = j
      if (Number.isNaN(y[high]!) || y[j]! > y[high]!) high = j
    }
    if (low === high) high = Math.min(i + 3, y.length - 1)
    kept.push(Math.min(low, high))
    if (low !== high) kept.push(Math.max(low, high))
  }
  return kept
}

/** How many of the first records came before, as after a reconnection. */
export function n_known({ index, wall }: Batch, last: { index: number; wall: number }): number {
  let n = 0
  while (n < index.length && index[n]! <= last.index && wall[n]! <= last.wall) n++
  return n
}

export class Records {
  /** Counts the changes. */
  version = 0
  n = 0
  values: Value[] = []
  notes: Note[] = []
  /** Lines over the steps by name: `step, wall, index, y`; a distribution has `low, middle, high` instead of y. */
  readonly lines = new Map<string, Columns>()
  n_names_left_out = 0
  private readonly series: Columns
  private readonly path: Columns
  private last = { index: -Infinity, wall: -Infinity }
  private bytes = 0
  private sizes: number[] = []

  /** @param max_points - How many points of a line are held before they are thinned. */
  constructor(private readonly max_points = MAX_POINTS) {
    this.series = new Columns(4, max_points)
    this.path = new Columns(4, max_points)
  }

  /** How often the numbers were thinned. */
  get n_thinned(): number {
    return this.series.n_thinned
  }

  get numbers(): Numbers {
    const [step, wall, index, y] = this.series.columns as [Float64Array, Float64Array, Float64Array, Float64Array]
    return { step, wall, index, y }
  }

  /** The points of pairs, triples and notes, in the order in which they came; z is NaN where there is none. */
  get points(): { step: Float64Array; x: Float64Array; z: Float64Array; y: Float64Array } {
    const [step, x, z, y] = this.path.columns as [Float64Array, Float64Array, Float64Array, Float64Array]
    return { step, x, z, y }
  }

  push(batch: Batch): void {
    const { step, wall, index, y, values } = batch
    const n = y?.length ?? values!.length
    const known = Math.min(n, n_known(batch, this.last))
    if (y) this.series.append([step, wall, index, y], known)
    else if (known < n) {
      // Who holds the values of before goes on holding them.
      this.values = this.values.slice()
      for (let i = known; i < n; i++) this.take({ step: step[i]!, wall: wall[i]!, index: index[i]!, value: values![i] })
    }
    this.n += n - known
    if (n) this.last = { index: index[n - 1]!, wall: wall[n - 1]! }
    this.version++
  }

  private take(record: Value): void {
    const { step, wall, index, value } = record
    this.keep(record)
    if (typeof value === 'number' || typeof value === 'boolean') return this.series.push(step, wall, index, Number(value))
    const point = pointOf(value)
    if (point) {
      this.path.push(step, point[0], point[2], point[1])
      const note = noteOf(value)
      if (note) this.notes = [...this.notes, { x: point[0], y: point[1], text: note }].slice(-MAX_NOTES)
    }
    const band = bandOf(value)
    if (band) return this.line('', 6).push(step, wall, index, ...band)
    let n_left_out = 0
    for (const [name, y] of named(value)) {
      if (typeof y !== 'number') continue
      if (this.lines.size < MAX_LINES || this.lines.has(name)) this.line(name, 4).push(step, wall, index, y)
      else n_left_out++
    }
    if (n_left_out) this.n_names_left_out = n_left_out
  }

  private line(name: string, n_columns: number): Columns {
    let line = this.lines.get(name)
    if (line) return line
    this.lines.set(name, (line = new Columns(n_columns, MAX_LINE_POINTS)))
    // All lines together hold as many points as a single stream of numbers, or few each.
    const each = Math.max(MAX_LINE_POINTS, Math.floor(this.max_points / this.lines.size))
    for (const one of this.lines.values()) one.limit(each)
    return line
  }

  private keep(record: Value): void {
    const bytes = sizeOf(record.value)
    this.sizes.push(bytes)
    this.bytes += bytes
    this.values.push(record)
    while (this.values.length > MAX_VALUES || (this.values.length > 1 && this.bytes > MAX_VALUE_BYTES)) {
      this.values.shift()
      this.bytes -= this.sizes.shift()!
    }
  }
}
