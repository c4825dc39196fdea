import { expect, test } from 'vitest'
import { named, pictureIn, sheetOf, textOf } from '../src/views/values'

const sheet = { columns: [{ name: 'loss', type: 'float64' }, { name: 'label', type: 'text' }], n_rows: 1200, rows: [[0.5, 'cat']] }

test('a table is told from a mapping with columns and rows', () => {
  expect(sheetOf(sheet)).toBe(sheet)
  expect(named(sheet)).toEqual([])
  expect(textOf(sheet)).toBe('1,200 rows of loss, label')
  for (const other of [null, 1, 'x', [1], { columns: 3, rows: 2 }]) expect(sheetOf(other)).toBeNull()
})

test('pictures in cells', () => {
  expect(pictureIn({ png: 'iVBO', caption: 'a' })).toEqual({ data: 'iVBO', type: 'image/png', caption: 'a' })
  expect(pictureIn({ media_type: 'image/jpeg', data: 'x' })).toEqual({ data: 'x', type: 'image/jpeg', caption: '' })
  for (const other of [null, 3, 'text', { media_type: 'application/pdf', data: 'x' }]) expect(pictureIn(other)).toBeNull()
})
