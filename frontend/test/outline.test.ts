import { expect, test } from 'vitest'
import { outlineOf } from '../src/pages/tensors/outline'

test('the outline of a histogram encloses one, whatever the widths of its bins', () => {
  const { x, y } = outlineOf([1, 3, 0], [0, 1, 3, 4])
  expect([...x]).toEqual([0, 0, 1, 1, 3, 3, 4, 4])
  expect([...y]).toEqual([0, 0.25, 0.25, 0.375, 0.375, 0, 0, 0])
  expect([...outlineOf([0], [0, 1]).y]).toEqual([0, 0, 0, 0])
})
