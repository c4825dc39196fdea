// Which points of a line are drawn: of each pixel column the smallest and the largest, so that no extreme is lost; one
// NaN wherever there is a gap, so that no line crosses one; infinities; and always the first and the last.

import { lowerBound } from './bounds'
import type { Span } from './span'

/** More columns than all but the widest charts have pixels. */
export const N_COLUMNS = 2_000
/** Shorter lines are drawn in full. */
export const MAX_DRAWN = 2 * N_COLUMNS

/** The increasing indices in `from` … `end` to draw, or null for all. `x` increases; `span` is the visible range. */
export function keptIn(x: Float64Array, y: Float64Array, from: number, end: number, span: Span, log: boolean): number[] | null {
  if (end - from <= MAX_DRAWN) return null
  const [low, high] = span
  const ratio = log && low > 0 ? high / low : 0
  const edge = (c: number) => (ratio ? low * ratio ** (c / N_COLUMNS) : low + ((high - low) * c) / N_COLUMNS)
  const kept: number[] = []
  for (let c = 1, start = from; start < end; c++) {
    const stop = c >= N_COLUMNS ? end : Math.max(start, Math.min(end, upTo(x, edge(c), start, end)))
    if (stop > start) keepColumn(y, start, stop, kept)
    start = stop
  }
  if (kept[0] !== from) kept.unshift(from)
  if (kept[kept.length - 1] !== end - 1) kept.push(end - 1)
  return kept
}

/** As `lowerBound` within a part, for a value near its start. */
function upTo(x: Float64Array, at: number, from: number, end: number): number {
  let reach = 64
  while (from + reach < end && x[from + reach]! < at) reach *= 2
  const first = from + (reach >> 1) < end && x[from + (reach >> 1)]! < at ? from + (reach >> 1) : from
  return first + lowerBound(x.subarray(first, Math.min(end, from + reach + 1)), at)
}

function keepColumn(y: Float64Array, start: number, stop: number, kept: number[]): void {
  let [low, high, up, down, n_nan] = [-1, -1, -1, -1, 0]
  let [least, most] = [Infinity, -Infinity]
  for (let i = start; i < stop; i++) {
    const value = y[i]!
    if (value - value === 0) {
      if (value < least) [least, low] = [value, i]
      if (value > most) [most, high] = [value, i]
    } else if (value !== value) n_nan++
    else if (value > 0) up = i
    else down = i
  }
  if (n_nan === 0 && up < 0 && down < 0) {
    kept.push(Math.min(low, high))
    if (low !== high) kept.push(Math.max(low, high))
    return
  }
  let gap = -1
  for (let i = start; i < stop; i++) {
    if (Number.isNaN(y[i]!)) {
      if (gap < 0) gap = i
    } else if (i === low || i === high || i === up || i === down) {
      if (gap >= 0) kept.push(gap)
      kept.push(i)
      gap = -1
    }
  }
  if (gap >= 0) kept.push(gap)
}

/** Both of two increasing lists, each place once. */
export function joined(a: readonly number[], b: readonly number[]): number[] {
  return [...new Set([...a, ...b])].sort((p, q) => p - q)
}

export const picked = (column: Float64Array, kept: readonly number[] | null): Float64Array => (kept ? Float64Array.from(kept, (i) => column[i]!) : column)
