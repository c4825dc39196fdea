// The records of one stream for views: numbers in growing columns, other values in a list.
// Memory is bounded: what is full is thinned evenly over the whole stream, as in `core/buffer.py`, by the same rule.

import type { Shown } from './shown'
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
  /** What is missing between the records was thinned, in buckets of 2**bits of them. */
  bits?: number
  y?: Float64Array
  values?: unknown[]
  /** Of thinned numbers, the area under the line of all records since the one before; NaN where none was thinned. */
  area?: Float64Array
  /** The numbers of the first records of runs that began again. */
  restarts?: readonly number[]
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

/** What is thinned: a quarter at most. Another quarter, the newest, stays exact; the rest is room for more. */
const SHARE = 4
/** A value of more than this part of all bytes is held while it is new, and not among the thinned ones. */
const LARGE_SHARE = 8
/** A bucket of 2**52 records holds every stream. */
const MAX_BITS = 52

/** Columns of one length that grow in place. One of them is the records' index numbers; of some the extremes stay. */
export class Columns {
  n = 0
  n_seen = 0
  n_thinned = 0
  /** The thinned rows are in buckets of 2**bits records. */
  bits = 0
  private data: Float64Array[]
  /** Between each row and the one before, over the index numbers: the area under the line of all rows that were pushed. */
  private areas: Float64Array = new Float64Array(256)

  constructor(
    n_columns: number,
    private max = MAX_POINTS,
    private readonly index_at = 2,
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
    this.areas[this.n] = NaN
    this.n++
    this.n_seen++
  }

  /** Take in many rows at once: all of some columns from a place on, and their areas where some were thinned. */
  append(columns: readonly Float64Array[], from: number, areas?: Float64Array): void {
    const length = columns[0]!.length
    for (let at = from; at < length; ) {
      this.room(length - at)
      const n = Math.min(length - at, this.max - this.n)
      columns.forEach((column, k) => this.data[k]!.set(column.subarray(at, at + n), this.n))
      if (areas) this.areas.set(areas.subarray(at, at + n), this.n)
      else this.areas.fill(NaN, this.n, this.n + n)
      this.n += n
      this.n_seen += n
      at += n
    }
  }

  /** The present columns; later pushes do not change them. */
  get columns(): Float64Array[] {
    return this.data.map((column) => column.subarray(0, this.n))
  }

  /** The mean of the line between each row and the one before, as `smooth` takes it; undefined where nothing was thinned. */
  get means(): Float64Array | undefined {
    if (this.bits === 0) return undefined
    return lineMeans(this.data[this.index_at]!, this.data[this.middle]!, this.areas.subarray(0, this.n))
  }

  /** The column that is smoothed: y, or the middle of a band. */
  private get middle(): number {
    return this.index_at + 1 + ((this.data.length - this.index_at - 2) >> 1)
  }

  /** Make room for at least one row, and for `n` where there may be so many. */
  private room(n: number): void {
    if (this.n >= this.max) this.thin()
    const length = this.data[0]!.length
    if (this.n + n <= length || length >= this.max) return
    const next = Math.min(this.max, Math.max(2 * length, this.n + n))
    this.data = this.data.map((column) => grown(column, next))
    this.areas = grown(this.areas, next)
  }

  private thin(): void {
    const quarter = Math.floor(this.max / SHARE)
    const older = this.n - quarter
    const index = this.data[this.index_at]!
    const ys = this.data.slice(this.index_at + 1)
    let rows = Array.from({ length: older }, (_, i) => i)
    while ((rows = retained(rows, index, ys, this.bits)).length > quarter && this.bits < MAX_BITS) this.bits++
    const areas = mergedAreas(index, this.data[this.middle]!, this.areas.subarray(0, older), rows)
    for (let i = older; i < this.n; i++) {
      areas.push(this.areas[i]!)
      rows.push(i)
    }
    const length = Math.max(this.max, rows.length + 1)
    this.areas = grown(Float64Array.from(areas), length)
    this.data = this.data.map((column) => {
      const next = new Float64Array(length)
      rows.forEach((from, to) => (next[to] = column[from]!))
      return next
    })
    this.n = rows.length
    this.n_thinned++
  }
}

/** The areas of the rows that stay when others are thinned; the same as in `core/buffer.py`. */
export function mergedAreas(index: Float64Array, y: Float64Array, areas: Float64Array, kept: readonly number[]): number[] {
  const merged: number[] = []
  let [sum, last] = [0, -1]
  for (let i = 0; i < areas.length; i++) {
    const [area, finite] = [areas[i]!, Number.isFinite(y[i]!)]
    if (!Number.isNaN(area)) sum += area
    // Across a gap behind which records were thinned before, the last finite one may be among those.
    else if (finite && last >= 0 && (last === i - 1 || Number.isNaN(areas[last]!))) sum += (y[i]! / 2 + y[last]! / 2) * (index[i]! - index[last]!)
    if (finite) last = i
    if (i !== kept[merged.length]) continue
    merged.push(sum)
    sum = 0
  }
  return merged
}

/** The mean of the line between each value and the one before; NaN where it is straight, and at gaps. */
export function lineMeans(index: Float64Array, y: Float64Array, areas: Float64Array): Float64Array {
  const means = new Float64Array(areas.length).fill(NaN)
  for (let i = 1; i < areas.length; i++) {
    if (Number.isFinite(y[i]!) && Number.isFinite(y[i - 1]!)) means[i] = areas[i]! / (index[i]! - index[i - 1]!)
  }
  return means
}

function grown(column: Float64Array, length: number): Float64Array {
  const next = new Float64Array(length)
  next.set(column)
  return next
}

/** Which of some rows stay in buckets of 2**bits records: first and last, finite extremes of each y, the first NaN and ±Inf. */
export function retained(rows: readonly number[], index: Float64Array, ys: readonly Float64Array[], bits: number): number[] {
  if (bits === 0) return rows.slice()
  const size = 2 ** bits
  const kept: number[] = []
  for (let start = 0, end; start < rows.length; start = end) {
    const bucket = Math.floor(index[rows[start]!]! / size)
    for (end = start + 1; end < rows.length && Math.floor(index[rows[end]!]! / size) === bucket; ) end++
    const chosen = new Set([rows[start]!, rows[end - 1]!])
    for (const y of ys) {
      const odd = new Map<number, number>()
      let [low, high] = [-1, -1]
      for (let at = start; at < end; at++) {
        const [row, value] = [rows[at]!, y[rows[at]!]!]
        if (!Number.isFinite(value)) {
          if (!odd.has(value)) odd.set(value, row)
          continue
        }
        if (low < 0 || value < y[low]!) low = row
        if (high < 0 || value > y[high]!) high = row
      }
      for (const row of [low, high, ...odd.values()]) if (row >= 0) chosen.add(row)
    }
    kept.push(...[...chosen].sort((a, b) => a - b))
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
  /** The numbers of the first records of runs that began again. */
  restarts: readonly number[] = []
  /** Lines over the steps by name: `step, wall, index, y`; a distribution has `low, middle, high` instead of y. */
  readonly lines = new Map<string, Columns>()
  n_names_left_out = 0
  private readonly series: Columns
  private readonly path: Columns
  private last = { index: -Infinity, wall: -Infinity }
  private bytes = 0
  private sizes: number[] = []
  private value_bits = 0

  /** @param max_points - How many points of a line are held before they are thinned. */
  constructor(private readonly max_points = MAX_POINTS) {
    this.series = new Columns(4, max_points)
    this.path = new Columns(5, max_points)
  }

  /** How many records an older number stands for. */
  get bucket(): number {
    return 2 ** this.series.bits
  }

  /** How much of the stream is held; null where the records are no points of a line. */
  get shown(): Shown | null {
    const line = [this.series, this.path, ...this.lines.values()].find(({ n }) => n > 0)
    if (!line) return null
    const [n_shown, every, index] = [line.n, 2 ** line.bits, line.columns[2]!]
    // What is missing between records of which none was thinned is lost, and counted as that.
    const n_made = every > 1 ? index[n_shown - 1]! - index[0]! + 1 : n_shown
    return { n_made, n_shown, every }
  }

  /** How often the numbers were thinned. */
  get n_thinned(): number {
    return this.series.n_thinned
  }

  /** The means of the line of numbers, as `Columns.means`. */
  get means(): Float64Array | undefined {
    return this.series.means
  }

  get numbers(): Numbers {
    const [step, wall, index, y] = this.series.columns as [Float64Array, Float64Array, Float64Array, Float64Array]
    return { step, wall, index, y }
  }

  /** The points of pairs, triples and notes, in the order in which they came; z is NaN where there is none. */
  get points(): { step: Float64Array; x: Float64Array; z: Float64Array; y: Float64Array } {
    const [step, x, , y, z] = this.path.columns as [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array]
    return { step, x, z, y }
  }

  push(batch: Batch): void {
    const { step, wall, index, bits = 0, y, values, area, restarts = [] } = batch
    if (restarts.length) this.restarts = [...new Set([...this.restarts, ...restarts])].sort((a, b) => a - b)
    this.series.bits = Math.max(this.series.bits, bits)
    const n = y?.length ?? values!.length
    const known = Math.min(n, n_known(batch, this.last))
    if (y) this.series.append([step, wall, index, y], known, area)
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
      this.path.push(step, point[0], index, point[1], point[2])
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
    if (this.values.length > MAX_VALUES || (this.values.length > 1 && this.bytes > MAX_VALUE_BYTES)) this.thinValues()
  }

  /** Of the older values keep the first of each bucket; of the newest a quarter, or half of the bytes. */
  private thinValues(): void {
    let [tail, bytes] = [this.values.length - 1, this.sizes.at(-1)!]
    while (tail > 0 && this.values.length - tail < MAX_VALUES / SHARE && (bytes += this.sizes[tail - 1]!) <= MAX_VALUE_BYTES / 2) tail--
    const index = Float64Array.from(this.values, (value) => value.index)
    let rows = Array.from({ length: tail }, (_, i) => i).filter((i) => this.sizes[i]! <= MAX_VALUE_BYTES / LARGE_SHARE)
    const taken = () => rows.reduce((sum, i) => sum + this.sizes[i]!, 0)
    while (rows.length && (rows.length > MAX_VALUES / SHARE || taken() > MAX_VALUE_BYTES / SHARE)) {
      if (this.value_bits === MAX_BITS) rows = []
      rows = firsts(rows, index, ++this.value_bits)
    }
    for (let i = tail; i < this.values.length; i++) rows.push(i)
    this.values = rows.map((i) => this.values[i]!)
    this.sizes = rows.map((i) => this.sizes[i]!)
    this.bytes = this.sizes.reduce((sum, size) => sum + size, 0)
  }
}

function firsts(rows: readonly number[], index: Float64Array, bits: number): number[] {
  const bucket = (row: number): number => Math.floor(index[row]! / 2 ** bits)
  return rows.filter((row, i) => i === 0 || bucket(row) !== bucket(rows[i - 1]!))
}
