import { describe, expect, test } from 'vitest'
import { readNpy } from '../src/data/npy'
import { rowsOf } from '../src/data/tiles'
import { otherStep, readAgainst, writeAgainst } from '../src/pages/tensors/against'
import { placeOfStep } from '../src/ui/StepBar'
import { blockOf } from '../src/views/Heat'

describe('what is compared with', () => {
  test.each(['@previous', 'run key@same', '@1200', 'a@b@first'])('%s is read and written', (text) => {
    expect(writeAgainst(readAgainst(text)!)).toBe(text)
  })

  test.each(['', 'x', 'x@', 'x@soon'])('%s is nothing', (text) => {
    expect(readAgainst(text)).toBeNull()
  })

  test('the step is the nearest that there is', () => {
    const steps = [0, 10, 40]
    expect(otherStep({ run: '', when: 'previous' }, 40, steps)).toBe(10)
    expect(otherStep({ run: '', when: 'previous' }, 0, steps)).toBe(0)
    expect(otherStep({ run: 'b', when: 'same' }, 12, steps)).toBe(10)
    expect(otherStep({ run: '', when: 'first' }, 12, steps)).toBe(0)
    expect(otherStep({ run: '', when: 33 }, 0, steps)).toBe(40)
    expect(otherStep({ run: '', when: 'same' }, 0, [])).toBeNull()
  })
})

describe('a file of NumPy', () => {
  const file = (header: string, values: number[]): ArrayBuffer => {
    const text = header.padEnd(117) + '\n'
    const bytes = new Uint8Array(10 + text.length + 4 * values.length)
    bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, text.length, 0])
    bytes.set(new TextEncoder().encode(text), 10)
    bytes.set(new Uint8Array(new Float32Array(values).buffer), 10 + text.length)
    return bytes.buffer
  }

  test('is read', () => {
    const { shape, data } = readNpy(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", [1, 2, 3, 4, NaN, 6]))
    expect(shape).toEqual([2, 3])
    expect(Array.from(data)).toEqual([1, 2, 3, 4, NaN, 6])
  })

  test('of another kind is refused', () => {
    expect(() => readNpy(file("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", [1]))).toThrow('Expected float32')
  })
})

test('cells of any number of dimensions are rows', () => {
  expect(rowsOf({ values: 3 })).toEqual([[3]])
  expect(rowsOf({ values: [1, 'NaN'] })).toEqual([[1], ['NaN']])
  expect(rowsOf({ values: [[1, 2]] })).toEqual([[1, 2]])
  expect(rowsOf({ values: [] })).toEqual([])
})

test('each value of what was thinned stands behind one pixel', () => {
  const matrix = { rows: 3, columns: 4, data: [] }
  const rows = [0, 1, 2].map((i) => blockOf(i, 0, matrix, [10, 4]).rows)
  expect(rows).toEqual([[0, 3], [3, 6], [6, 10]])
  expect(blockOf(2, 3, matrix, [3, 4])).toEqual({ rows: [2, 3], columns: [3, 4] })
})

test('no step is the last step, and another one the nearest', () => {
  expect(placeOfStep([0, 5, 9], null)).toBe(2)
  expect(placeOfStep([0, 5, 9], 6)).toBe(1)
  expect(placeOfStep([], null)).toBe(-1)
})
