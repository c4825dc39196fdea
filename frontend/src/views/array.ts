// An array as it comes in a stream: `{dtype, shape, data}`, its numbers as bytes.

type Read = (buffer: ArrayBuffer, from: number, n: number) => ArrayLike<number>

const DTYPES: Record<string, [width: number, read: Read]> = {
  float64: [8, (b, at, n) => new Float64Array(b, at, n)],
  float32: [4, (b, at, n) => new Float32Array(b, at, n)],
  int32: [4, (b, at, n) => new Int32Array(b, at, n)],
  int16: [2, (b, at, n) => new Int16Array(b, at, n)],
  int8: [1, (b, at, n) => new Int8Array(b, at, n)],
  uint8: [1, (b, at, n) => new Uint8Array(b, at, n)],
  uint16: [2, (b, at, n) => new Uint16Array(b, at, n)],
  uint32: [4, (b, at, n) => new Uint32Array(b, at, n)],
  bool: [1, (b, at, n) => new Uint8Array(b, at, n)],
  int64: [8, (b, at, n) => Float64Array.from(new BigInt64Array(b, at, n), Number)],
  uint64: [8, (b, at, n) => Float64Array.from(new BigUint64Array(b, at, n), Number)],
}

export interface ArrayValue {
  shape: number[]
  dtype: string
  data: ArrayLike<number>
}

const read = new WeakMap<object, ArrayValue | null>()

/** Decode `{dtype, shape, data}`; null if it is not an array, or of a dtype that charts cannot show. */
export function arrayOf(value: unknown): ArrayValue | null {
  if (typeof value !== 'object' || value === null || !('dtype' in value)) return null
  let found = read.get(value)
  if (found === undefined) read.set(value, (found = made(value as Record<string, unknown>)))
  return found
}

function made({ dtype, shape, data }: Record<string, unknown>): ArrayValue | null {
  const [width, make] = (typeof dtype === 'string' && DTYPES[dtype]) || []
  const bytes = bytesOf(data)
  if (!width || !make || !Array.isArray(shape) || !bytes) return null
  const n = shape.reduce((a: number, b: number) => a * b, 1)
  if (bytes.byteLength !== n * width) return null
  const aligned = bytes.byteOffset % width ? bytes.slice() : bytes
  return { dtype: dtype as string, shape: shape as number[], data: make(aligned.buffer as ArrayBuffer, aligned.byteOffset, n) }
}

/** Bytes as msgpack or a notebook's bridge delivers them. */
export function bytesOf(data: unknown): Uint8Array | null {
  if (data instanceof Uint8Array) return data
  if (data instanceof ArrayBuffer) return new Uint8Array(data)
  return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : null
}
