// An array as it comes in a stream: `{dtype, shape, data}`, its numbers as bytes.

const DTYPES: Record<string, (buffer: ArrayBuffer) => ArrayLike<number>> = {
  float64: (b) => new Float64Array(b),
  float32: (b) => new Float32Array(b),
  int32: (b) => new Int32Array(b),
  int16: (b) => new Int16Array(b),
  int8: (b) => new Int8Array(b),
  uint8: (b) => new Uint8Array(b),
  uint16: (b) => new Uint16Array(b),
  uint32: (b) => new Uint32Array(b),
  bool: (b) => new Uint8Array(b),
  int64: (b) => Float64Array.from(new BigInt64Array(b), Number),
  uint64: (b) => Float64Array.from(new BigUint64Array(b), Number),
}

export interface ArrayValue {
  shape: number[]
  dtype: string
  data: ArrayLike<number>
}

/** Read `{dtype, shape, data}`; null where it is no array, or of a kind that no chart can show. */
export function arrayOf(value: unknown): ArrayValue | null {
  if (typeof value !== 'object' || value === null) return null
  const { dtype, shape, data } = value as Record<string, unknown>
  const make = typeof dtype === 'string' ? DTYPES[dtype] : undefined
  if (!make || !Array.isArray(shape) || !(data instanceof Uint8Array)) return null
  return { dtype: dtype as string, shape: shape as number[], data: make(data.slice().buffer as ArrayBuffer) }
}
