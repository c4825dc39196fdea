// A column of numbers in any of the forms in which it may come.

import { bytesOf } from './array'

/** Numbers; or the bytes of little-endian float64, or of int64 where the column counts. */
export function columnOf(value: unknown, counts = false): Float64Array {
  if (value instanceof Float64Array) return value
  if (Array.isArray(value)) return Float64Array.from(value, numberOf)
  if (ArrayBuffer.isView(value) && !(value instanceof DataView) && !(value instanceof Uint8Array)) return Float64Array.from(value as unknown as ArrayLike<number>)
  const bytes = bytesOf(value)
  if (!bytes || bytes.byteLength % 8) throw new TypeError('Expected a column of numbers, or its bytes')
  const buffer = bytes.slice().buffer as ArrayBuffer
  return counts ? Float64Array.from(new BigInt64Array(buffer), Number) : new Float64Array(buffer)
}

/** JSON has no NaN and no infinities: they come as words, or as null. */
const numberOf = (value: unknown): number => (value === null ? NaN : Number(value))
