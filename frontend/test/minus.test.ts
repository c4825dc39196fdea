import { expect, test } from 'vitest'
import { minus } from '../src/pages/charts/minus'
import type { Line } from '../src/views/draw'
import { styleOf } from '../src/views/palette'

const line = (x: number[], y: number[], more: Partial<Line> = {}): Line => ({ id: 'a', label: 'a', style: styleOf(0), x: Float64Array.from(x), y: Float64Array.from(y), ...more })

test('a line minus the baseline, only where both are', () => {
  const base = line([10, 20, 40], [1, 2, 4], { raw: Float64Array.from([0, 0, 0]) })
  const one = line([0, 10, 15, 30, 40, 50], [9, 9, 9, 9, NaN, 9], { raw: Float64Array.from([1, 2, 3, 4, 5, 6]), n: [1, 2, 3, 4, 5, 6] })
  const { x, y, raw, n } = minus(one, base)
  expect([[...x], [...y], [...raw!], n]).toEqual([[10, 15, 30, 40], [8, 7.5, 6, NaN], [2, 3, 4, 5], [2, 3, 4, 5]])
  expect(minus(base, base).y).toEqual(Float64Array.from([0, 0, 0]))
})

test('a band moves with its mean; without a common place nothing is left', () => {
  const band = line([1, 2], [5, 6], { low: Float64Array.from([4, 5]), high: Float64Array.from([6, 7]) })
  const { y, low, high } = minus(band, line([0, 4], [1, 1]))
  expect([[...y], [...low!], [...high!]]).toEqual([[4, 5], [3, 4], [5, 6]])
  expect(minus(band, line([3, 4], [1, 1])).x).toHaveLength(0)
  expect(minus(band, line([], [])).x).toHaveLength(0)
})
