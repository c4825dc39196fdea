import { describe, expect, test } from 'vitest'
import { axisOf, cellAt, entriesOf, indexAt, isFree, placeIn, showing, sliceOf } from '../src/views/slices'

describe('the entries of a slice', () => {
  test.each([
    ['[0, :, 2:5]', 3, ['0', ':', '2:5']],
    ['0, :', 3, ['0', ':', ':']],
    ['[..., 3]', 3, [':', ':', '3']],
    ['[1, ..., ::-1]', 4, ['1', ':', ':', '::-1']],
    ['', 2, [':', ':']],
    ['[]', 0, []],
    ['[ -1 ,: ,]', 2, ['-1', ':']],
  ])('%s of %i dimensions', (text, n, expected) => {
    expect(entriesOf(text, n)).toEqual(expected)
  })

  test.each([
    ['[0, 1, 2]', 2],
    ['[0,,1]', 3],
    ['[..., ...]', 3],
  ])('%s cannot be split into %i', (text, n) => {
    expect(entriesOf(text, n)).toBeNull()
  })

  test('come back as they went', () => {
    expect(entriesOf(sliceOf(['0', '::2', ':']), 3)).toEqual(['0', '::2', ':'])
  })
})

describe('the places of a slice are those of Python', () => {
  test.each([
    [':', 5, [0, 1, 2, 3, 4]],
    ['1:4', 5, [1, 2, 3]],
    ['::2', 5, [0, 2, 4]],
    ['::-1', 4, [3, 2, 1, 0]],
    ['-2:', 5, [3, 4]],
    ['3:0:-2', 5, [3, 1]],
    ['2:99', 4, [2, 3]],
    ['5:2', 9, []],
    ['-99:2', 5, [0, 1]],
    ['9::-3', 5, [4, 1]],
  ])('%s of %i', (entry, length, expected) => {
    const axis = axisOf(entry, length)!
    expect(Array.from({ length: axis.n }, (_, i) => axis.start + i * axis.step)).toEqual(expected)
    expected.forEach((place, i) => expect(placeIn(axis, place)).toBe(i))
    expect(placeIn(axis, length + 1)).toBe(-1)
  })

  test('an integer is none', () => {
    expect(axisOf('-1', 4)).toBeNull()
    expect(isFree('3')).toBe(false)
  })
})

describe('elements and cells', () => {
  const [entries, shape] = [['-1', '::-2', '3:'], [2, 5, 8]]

  test('an element is found in the table, and a cell in the tensor', () => {
    expect(cellAt(entries, shape, [1, 2, 5])).toEqual([1, 2])
    expect(indexAt(entries, shape, 1, 2)).toEqual([1, 2, 5])
  })

  test('what the slice leaves out has no cell', () => {
    expect(cellAt(entries, shape, [0, 2, 5])).toBeNull()
    expect(cellAt(entries, shape, [1, 1, 5])).toBeNull()
    expect(cellAt(entries, shape, [1, 2])).toBeNull()
  })

  test('the slice is changed no more than it takes to show an element', () => {
    expect(showing(entries, shape, [1, 2, 5])).toEqual(['1', '::-2', '3:'])
    expect(showing(entries, shape, [0, 1, 0])).toEqual(['0', ':', ':'])
  })
})
