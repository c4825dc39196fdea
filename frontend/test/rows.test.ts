import { expect, test } from 'vitest'
import { rowsOf, type Table } from '../src/data/rows'

const table: Table = {
  step: 0,
  wall_time: 0,
  columns: [{ name: 'label', type: 'text' }, { name: 'the loss', type: 'float64' }, { name: 'n', type: 'int64' }, { name: 'seen', type: 'image' }],
  n_rows: 900,
  n_found: 900,
  offset: 0,
  rows: [['cat', 0.5, 3, null], ['Dog', 'Infinity', 1, null], ['bird', 'NaN', 2, null], [null, 0.25, 3, null], ['dove', null, 10, null]],
}
const labels = (wanted: Parameters<typeof rowsOf>[1]) => rowsOf(table, wanted).rows.map(([label]) => label)

test('pages', () => {
  const found = rowsOf(table, { offset: 1, limit: 2 })
  expect([found.n_rows, found.n_found, found.offset, found.rows.map(([label]) => label)]).toEqual([900, 5, 1, ['Dog', 'bird']])
})

test('sorts numbers by value and texts whatever their case; what is missing comes last', () => {
  expect(labels({ sort: 'the loss' })).toEqual([null, 'cat', 'Dog', 'bird', 'dove'])
  expect(labels({ sort: 'the loss', descending: 'true' })).toEqual(['Dog', 'cat', null, 'bird', 'dove'])
  expect(labels({ sort: 'label' })).toEqual(['bird', 'cat', 'Dog', 'dove', null])
  expect(labels({ sort: 'n', descending: 'true' })).toEqual(['dove', 'cat', null, 'bird', 'Dog'])
})

test('finds by conditions and by words', () => {
  expect(labels({ find: '"the loss" > 0.3' })).toEqual(['cat', 'Dog'])
  expect(labels({ find: 'n >= 2 and n != 3' })).toEqual(['bird', 'dove'])
  expect(labels({ find: 'label = Dog' })).toEqual(['Dog'])
  expect(labels({ find: 'label ~ DO' })).toEqual(['Dog', 'dove'])
  expect(labels({ find: 'do' })).toEqual(['Dog', 'dove'])
  expect(labels({ find: '  ' })).toHaveLength(5)
})

test('says what cannot be found or sorted', () => {
  expect(() => labels({ find: 'los < 1' })).toThrow("Unknown column 'los'. Known: label, the loss, n, seen")
  expect(() => labels({ find: 'n < many' })).toThrow("Expected int64 to compare 'n' with, got 'many'")
  expect(() => labels({ sort: 'seen' })).toThrow("Expected a column of numbers, times or texts, got 'seen', which is image")
})
