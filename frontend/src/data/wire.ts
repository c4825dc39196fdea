// Binary answers: msgpack maps whose number columns are raw little-endian bytes.

import type { Scalars } from './types'

export class WireError extends Error {}

type Columns = Record<string, unknown>

/** Read a column of float64. The bytes are copied: they stand anywhere in the message, aligned or not. */
export function floats(value: unknown): Float64Array {
  return new Float64Array(copied(value, 8))
}

/** Read a column of int64 as numbers; exact up to 2^53. */
export function integers(value: unknown): Float64Array {
  return Float64Array.from(new BigInt64Array(copied(value, 8)), Number)
}

function copied(value: unknown, width: number): ArrayBuffer {
  if (!(value instanceof Uint8Array)) throw new WireError(`Expected bytes, got ${typeof value}`)
  if (value.byteLength % width) throw new WireError(`Expected a multiple of ${width} bytes, got ${value.byteLength}`)
  return value.slice().buffer as ArrayBuffer
}

/** One entry of the answer to POST /scalars: the series, or the words of why not. */
export function scalarsOf(entry: unknown): Scalars | string {
  if (typeof entry !== 'object' || entry === null) throw new WireError('Expected a map for every series')
  const columns = entry as Columns
  if (columns.error) {
    const error = columns.error as { message?: string } | string
    return typeof error === 'string' ? error : (error.message ?? 'The server cannot read this series')
  }
  const [x, y, wall, step, mean] = ['x', 'y', 'wall', 'step', 'mean'].map((name) => floats(columns[name])) as [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array]
  if ([y, wall, step].some(({ length }) => length !== x.length) || (mean.length && mean.length !== x.length)) {
    throw new WireError('The columns of a series have different lengths')
  }
  if (![columns.parts, columns.restarts, columns.tracks].every(Array.isArray)) throw new WireError('Expected the parts of a series, its restarts and its step tracks')
  const parts = (columns.parts as number[][]).map(([start, end, alpha, pass]) => ({ start: start!, end: end!, alpha: alpha!, pass: pass! }))
  const about = { n: Number(columns.n), thinned: Boolean(columns.thinned), parts, restarts: columns.restarts as number[], tracks: columns.tracks as string[], cursor: String(columns.cursor), continued: Boolean(columns.continued), n_pending: Number(columns.n_pending ?? 0) }
  const integers = new Map((columns.integers ?? []) as [number, string][])
  return { ...about, x, y, wall, step, ...(mean.length && { mean }), ...(integers.size && { integers }) }
}
