// Lines minus that of the baseline.

import { lowerBound } from '../../views/bounds'
import { resampled } from '../../views/group'
import type { Line } from '../../views/draw'

/** A line minus another, which counts as straight between its points; only where both are. */
export function minus(line: Line, base: Line): Line {
  const [low, high] = [base.x[0] ?? Infinity, base.x[base.x.length - 1] ?? -Infinity]
  const start = lowerBound(line.x, low)
  const end = start + line.x.subarray(start).filter((at) => at <= high).length
  const x = line.x.subarray(start, end)
  const [smooth, raw] = [resampled(base, x), base.raw && resampled({ x: base.x, y: base.raw }, x)]
  const less = (column: Float64Array, of = smooth) => column.subarray(start, end).map((value, i) => value - of[i]!)
  return {
    ...line,
    x,
    y: less(line.y),
    ...(line.raw && { raw: less(line.raw, raw) }),
    ...(line.low && line.high && { low: less(line.low), high: less(line.high) }),
    ...(line.n && { n: Array.from(line.n).slice(start, end) }),
  }
}
