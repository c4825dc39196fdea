import { describe, expect, it } from 'vitest'
import { arrayOf } from '../src/views/array'
import { bandOf, barsOf, counted, countsOf, densities, matrixOf, named, namedNumbers, picturesOf, pointOf, noteOf, sizeOf, textOf, total } from '../src/views/values'

const array = (numbers: number[], shape = [numbers.length]) => ({ dtype: 'float32', shape, data: new Uint8Array(new Float32Array(numbers).buffer) })

describe('arrays', () => {
  it('are read at any place in a message', () => {
    const bytes = new Uint8Array(13)
    bytes.set(new Uint8Array(new Float64Array([1.5]).buffer), 5)
    expect(Array.from(arrayOf({ dtype: 'float64', shape: [1], data: bytes.subarray(5) })!.data)).toEqual([1.5])
  })
  it('come as the bytes of other bridges too', () => {
    const buffer = new Int32Array([7, 8]).buffer
    expect(Array.from(arrayOf({ dtype: 'int32', shape: [2], data: new DataView(buffer) })!.data)).toEqual([7, 8])
  })
  it.each([{ dtype: 'complex64', shape: [1], data: new Uint8Array(8) }, { dtype: 'float32', shape: [3], data: new Uint8Array(8) }, { dtype: 'float32', shape: 3, data: new Uint8Array(12) }, null, 3, 'x', {}])('are none where %o is none', (value) => {
    expect(arrayOf(value)).toBeNull()
  })
})

describe('bars', () => {
  it('join the names of nested mappings', () => {
    expect(barsOf({ a: { b: 1, c: true }, d: array([3]), e: 'no' })).toEqual({ names: ['a/b', 'a/c', 'd'], values: [1, 1, 3] })
  })
  it('number the items of vectors, NaN and infinities among them', () => {
    expect(barsOf([1, NaN, Infinity])).toEqual({ names: ['0', '1', '2'], values: [1, NaN, Infinity] })
    expect(barsOf(array([]))?.names ?? []).toEqual([])
  })
  it('are none of texts, images and what is empty', () => {
    for (const value of ['x', null, {}, [], { png: new Uint8Array(2) }, { too_large: 'x' }, ['a', 1]]) expect(barsOf(value)).toBeNull()
  })
  it('hold ten thousand names', () => {
    const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`<img src=x>${i}`, i]))
    expect(barsOf(many)!.names).toHaveLength(10_000)
  })
})

it('keeps what is no number among the names of a table', () => {
  expect(named({ a: 1, b: { c: 'x' } })).toEqual([['a', 1], ['b/c', 'x']])
  expect(namedNumbers({ a: 1, b: { c: 'x' } })).toEqual([['a', 1]])
})

describe('histograms', () => {
  it('count what is finite, and tell of the rest', () => {
    const found = counted([0, 1, 1, NaN, Infinity, -Infinity], 2)
    expect(found).toEqual({ edges: [0, 0.5, 1], counts: [1, 2], n_nan: 1, n_posinf: 1, n_neginf: 1 })
  })
  it('have a width even of one value, and of none', () => {
    expect(counted([3], 1).edges).toEqual([2.5, 3.5])
    expect(total(counted([NaN]))).toBe(0)
  })
  it('are taken as they come', () => {
    expect(countsOf({ counts: array([1, 2]), edges: [0, 1, 3], n_nan: 4 })).toEqual({ counts: [1, 2], edges: [0, 1, 3], n_nan: 4, n_posinf: 0, n_neginf: 0 })
    expect(countsOf({ counts: [1, 2], edges: [0, 1] })).toBeNull()
    expect(countsOf('text')).toBeNull()
  })
  it('are drawn by the width of their bins', () => {
    expect(densities({ edges: [0, 1, 3], counts: [2, 2], n_nan: 0, n_posinf: 0, n_neginf: 0 })).toEqual([2, 1])
  })
  it('of matrices count all values', () => {
    expect(total(countsOf(array([1, 2, 3, 4], [2, 2]))!)).toBe(4)
  })
})

it('finds the middle and the ends of a distribution', () => {
  expect(bandOf(Array.from({ length: 11 }, (_, i) => i))).toEqual([1, 5, 9])
  const [low, middle, high] = bandOf({ counts: [10, 10], edges: [0, 1, 2] })!
  expect([low, middle, high].map((v) => +v.toFixed(6))).toEqual([0.2, 1, 1.8])
  expect(bandOf([NaN, NaN])).toEqual([NaN, NaN, NaN])
  expect(bandOf({ a: 1 })).toBeNull()
})

it('reads points, and the texts at them', () => {
  expect(pointOf([1, 2])).toEqual([1, 2, NaN])
  expect(pointOf([1, 2, 3])).toEqual([1, 2, 3])
  expect(pointOf([1, 2, 'here'])).toEqual([1, 2, NaN])
  expect(noteOf([1, 2, 'here'])).toBe('here')
  for (const value of [[1], [1, 'x'], [1, 2, 3, 4], 'xy', [1, 2, null]]) expect(pointOf(value)).toBeNull()
})

describe('pictures', () => {
  it('are files, several of them, and pixels', () => {
    const png = new Uint8Array([1])
    expect(picturesOf({ png, caption: 'c' })).toEqual([{ bytes: png, type: 'image/png', caption: 'c' }])
    expect(picturesOf({ images: [{ png }, { png }] })).toHaveLength(2)
    const pixels = { dtype: 'uint8', shape: [2, 1, 2, 3], data: new Uint8Array(12).map((_, i) => i) }
    expect(picturesOf(pixels).map((one) => ('pixels' in one ? [one.height, one.width, one.channels, one.pixels] : null))).toEqual([[1, 2, 3, [0, 1, 2, 3, 4, 5]], [1, 2, 3, [6, 7, 8, 9, 10, 11]]])
  })
  it('are none of other media types: a page is not to run them', () => {
    expect(picturesOf({ dtype: 'uint8', shape: [2, 2], data: Uint8Array.of(0, 1, 2, 3) })).toMatchObject([{ height: 2, width: 2, channels: 1, pixels: [0, 1, 2, 3] }])
    expect(picturesOf({ media_type: 'text/html', data: new Uint8Array(3) })).toEqual([])
    expect(picturesOf(array([1, 2]))).toEqual([])
  })
})

it('reads matrices once', () => {
  const value = array([1, 2, 3, 4, 5, 6], [2, 3])
  expect(matrixOf(value)).toMatchObject({ rows: 2, columns: 3 })
  expect(matrixOf(value)).toBe(matrixOf(value))
  expect(matrixOf(array([1, 2]))).toBeNull()
  expect(matrixOf(array([], [0, 3]))).toBeNull()
})

it('says any value in words', () => {
  expect(textOf('<b>')).toBe('<b>')
  expect(textOf(null)).toBe('—')
  expect(textOf(array([1, 2]))).toBe('float32[2]  1, 2')
  expect(textOf({ too_large: 'float32[9999, 9999]' })).toContain('too large')
  expect(textOf({ problem: 'broken' })).toBe('broken')
  expect(textOf([1, 'a', { b: 2n }])).toBe('[1, a, {b: 2}]')
  expect(textOf('x'.repeat(5000))).toContain('5,000 characters')
  expect(textOf(Object.fromEntries(Array.from({ length: 20 }, (_, i) => [i, i])))).toContain('20 in all')
})

it('weighs values', () => {
  expect(sizeOf(array(Array.from({ length: 1000 }, () => 0)))).toBeGreaterThan(4000)
  expect(sizeOf(1)).toBe(16)
})
