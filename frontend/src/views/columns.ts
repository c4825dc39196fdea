// A column of numbers in any of the forms in which it may come.

import { bytesOf } from './array'

/** Numbers; or the bytes of little-endian float64, or of int64 where the column counts. */
export function columnOf(value: unknown, counts = false): Float64Array {
  if (value instanceof Float64Array) return value
  if (Array.isArray(value)) return Float64Array.from(value, numberOf)
  if (ArrayBuffer.isView(value) && !(value instanceof DataView) && !(value instanceof Uint8Array)) return Float64Array.from(value as unknown as ArrayLike<number>)
  const bytes = bytesOf(value)
  if (!bytes || bytes.byteLength % 8) throw new TypeError('Expected a column of numbers, or its bytes')
  // Bytes that do not begin at a multiple of eight have to be moved.
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % 8 ? bytes.slice() : bytes
  return counts ? integers(new Int32Array(buffer, byteOffset, byteLength / 4)) : new Float64Array(buffer as ArrayBuffer, byteOffset, byteLength / 8)
}

/** int64 as halves: much faster than by way of BigInt, and as exact as float64 can be. */
function integers(halves: Int32Array): Float64Array {
  const out = new Float64Array(halves.length / 2)
  for (let i = 0; i < out.length; i++) out[i] = (halves[2 * i]! >>> 0) + halves[2 * i + 1]! * 2 ** 32
  return out
}

/** JSON has no NaN and no infinities: they come as words, or as null. */
const numberOf = (value: unknown): number => (value === null ? NaN : Number(value))
