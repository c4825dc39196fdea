// The ranges of a chart's axes.

import type { Span } from './span'

/** The first index whose x is at least `at`. */
export function lowerBound(x: ArrayLike<number>, at: number): number {
  let [low, high] = [0, x.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (x[middle]! < at) low = middle + 1
    else high = middle
  }
  return low
}

/** The index of the point nearest to `at`; -1 where there is none. */
export function nearest(x: ArrayLike<number>, at: number): number {
  if (x.length === 0) return -1
  const right = lowerBound(x, at)
  if (right === 0) return 0
  if (right === x.length) return right - 1
  return at - x[right - 1]! <= x[right]! - at ? right - 1 : right
}

/** The smallest and the largest x of several lines; with `log`, of those above zero. */
export function extentOf(columns: readonly ArrayLike<number>[], log: boolean): Span | null {
  let [low, high] = [Infinity, -Infinity]
  for (const x of columns) {
    const from = log ? lowerBound(x, Number.MIN_VALUE) : 0
    if (from >= x.length) continue
    low = Math.min(low, x[from]!)
    high = Math.max(high, x[x.length - 1]!)
  }
  return low > high ? null : [low, high]
}

export interface RangeOptions {
  log: boolean
  /** Hide the most extreme 1 % at each end. */
  clip: boolean
}

/** The range of y of the points within `xs`, with a margin; null if no point can be shown. */
export function rangeOf(lines: readonly { x: Float64Array; y: Float64Array }[], xs: Span, options: RangeOptions): Span | null {
  const values: number[] = []
  let [low, high] = [Infinity, -Infinity]
  for (const { x, y } of lines) {
    const end = Math.min(x.length, lowerBound(x, xs[1]) + 1)
    for (let i = Math.max(0, lowerBound(x, xs[0]) - 1); i < end; i++) {
      const value = y[i]!
      if (!Number.isFinite(value) || (options.log && value <= 0)) continue
      if (options.clip) values.push(value)
      if (value < low) low = value
      if (value > high) high = value
    }
  }
  if (low > high) return null
  if (options.clip && values.length > 20) {
    values.sort((a, b) => a - b)
    low = values[Math.floor(0.01 * (values.length - 1))]!
    high = values[Math.ceil(0.99 * (values.length - 1))]!
  }
  return padded([low, high], options.log)
}

/** Values that differ by a smaller share are equal up to rounding. */
const SAME = 1e-12

function padded([low, high]: Span, log: boolean): Span {
  if (high - low <= SAME * Math.max(Math.abs(low), Math.abs(high))) low = high = (low + high) / 2
  if (log) {
    const air = Math.max(0.05 * Math.log10(high / low), low === high ? 0.3 : 0.02)
    return [low / 10 ** air, high * 10 ** air]
  }
  if (low === high) {
    const air = Math.abs(low) * 0.1 || 1
    return [low - air, high + air]
  }
  const air = (high - low) * 0.06
  return [low - air, high + air]
}
