// Several lines as one: their mean, with a band of deviation or range around it.

export interface Points {
  x: Float64Array
  y: Float64Array
}

export interface Band extends Points {
  low: Float64Array
  high: Float64Array
  /** How many lines had a value at each x. */
  n: Uint32Array
}

export type BandKind = 'std' | 'range' | 'none'

const MAX_POINTS = 2_000

/**
 * The mean of some lines over all their x.
 *
 * Between its points a line counts as straight, outside of them it does not count. NaN and infinities count nowhere.
 * The deviation is that of the sample (n − 1), 0 for a single line.
 */
export function meanOf(lines: readonly Points[], kind: BandKind): Band {
  const x = unionOf(lines.map((line) => line.x))
  const n = new Uint32Array(x.length)
  const [y, low, high, m2] = [0, 0, 0, 0].map(() => new Float64Array(x.length)) as [
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
  ]
  low.fill(Infinity)
  high.fill(-Infinity)
  for (const line of lines) {
    const values = resampled(line, x)
    for (let i = 0; i < x.length; i++) {
      const value = values[i]!
      if (!Number.isFinite(value)) continue
      const count = ++n[i]!
      const before = value - y[i]!
      y[i]! += before / count
      m2[i]! += before * (value - y[i]!)
      if (value < low[i]!) low[i] = value
      if (value > high[i]!) high[i] = value
    }
  }
  for (let i = 0; i < x.length; i++) {
    if (n[i] === 0) y[i] = low[i] = high[i] = NaN
    else if (kind !== 'range') {
      const deviation = kind === 'std' && n[i]! > 1 ? Math.sqrt(m2[i]! / (n[i]! - 1)) : 0
      low[i] = y[i]! - deviation
      high[i] = y[i]! + deviation
    }
  }
  return { x, y, low, high, n }
}

function unionOf(columns: Float64Array[]): Float64Array {
  const all = new Float64Array(columns.reduce((sum, column) => sum + column.length, 0))
  let end = 0
  for (const column of columns) {
    all.set(column, end)
    end += column.length
  }
  all.sort()
  let n = 0
  for (let i = 0; i < all.length; i++) if (i === 0 || all[i] !== all[i - 1]) all[n++] = all[i]!
  if (n <= MAX_POINTS) return all.slice(0, n)
  return Float64Array.from({ length: MAX_POINTS }, (_, i) => all[Math.round((i * (n - 1)) / (MAX_POINTS - 1))]!)
}

/** A line's values at other places, between its points on the straight line; NaN outside. */
export function resampled({ x, y }: Points, places: Float64Array): Float64Array {
  const out = new Float64Array(places.length).fill(NaN)
  let j = 0
  for (let i = 0; i < places.length; i++) {
    const at = places[i]!
    if (!(at >= x[0]! && at <= x[x.length - 1]!)) continue
    while (j + 1 < x.length && x[j + 1]! <= at) j++
    if (x[j] === at) out[i] = y[j]!
    else out[i] = y[j]! + ((y[j + 1]! - y[j]!) * (at - x[j]!)) / (x[j + 1]! - x[j]!)
  }
  return out
}
