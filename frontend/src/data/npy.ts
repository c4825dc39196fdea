// NumPy's file format, as far as the server writes it for pictures of tensors: float32, C order.

export interface Floats {
  shape: number[]
  data: Float32Array
}

export function readNpy(buffer: ArrayBuffer): Floats {
  const view = new DataView(buffer)
  const wide = view.getUint8(6) > 1
  const start = wide ? 12 : 10
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true)
  const header = new TextDecoder('latin1').decode(new Uint8Array(buffer, start, length))
  if (!/'descr': '<f4'/.test(header) || /'fortran_order': True/.test(header)) throw new Error(`Expected float32 in C order, got ${header.trim()}`)
  const shape = (/'shape': \(([^)]*)\)/.exec(header)?.[1] ?? '').split(',').filter((part) => part.trim()).map(Number)
  return { shape, data: new Float32Array(buffer.slice(start + length)) }
}
