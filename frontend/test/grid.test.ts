import { expect, test } from 'vitest'
import { gridOf } from '../src/views/grid'
import { ratioOf } from '../src/views/values'

test('pictures fill the box in more than one row where that makes them larger', () => {
  expect(gridOf(9, 900, 290, 1, 18)).toEqual({ columns: 5, tile: 123 })
  expect(gridOf(1, 900, 290, 1)).toEqual({ columns: 1, tile: 290 })
  expect(gridOf(2, 900, 290, 1)).toEqual({ columns: 2, tile: 290 })
})

test('wide pictures stand below each other', () => {
  expect(gridOf(3, 600, 600, 4)).toEqual({ columns: 1, tile: 600 })
})

test('too many for the box scroll, at a size that still shows something', () => {
  const { columns, tile } = gridOf(64, 600, 200, 1, 18)
  expect(tile).toBeGreaterThanOrEqual(84)
  expect(columns * tile + 8 * (columns - 1)).toBeLessThanOrEqual(600)
})

test('never fail on a box without room', () => {
  expect(gridOf(9, 0, 0, 1).columns).toBe(1)
})

test('the ratio of a PNG stands in its head', () => {
  const png = new Uint8Array(32)
  const head = new DataView(png.buffer)
  head.setUint32(16, 640)
  head.setUint32(20, 320)
  expect(ratioOf({ bytes: png, type: 'image/png', caption: '' })).toBe(2)
  expect(ratioOf({ bytes: new Uint8Array(3), type: 'image/png', caption: '' })).toBe(1)
  expect(ratioOf({ pixels: [], width: 3, height: 2, channels: 1, caption: '' })).toBe(1.5)
})
