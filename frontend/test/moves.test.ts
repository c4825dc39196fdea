import { expect, it } from 'vitest'
import { moved } from '../src/views/moves'

it('a span moves by a share of its width, and stops at the ends', () => {
  expect(moved([10, 20], [0, 100], false, 0.5, 1, 0.5)).toEqual([15, 25])
  expect(moved([10, 20], [0, 100], false, -9, 1, 0.5)).toEqual([0, 10])
  expect(moved([80, 90], [0, 100], false, 9, 1, 0.5)).toEqual([90, 100])
})
it('it becomes wider and narrower around a place that stays, up to the whole', () => {
  expect(moved([10, 20], [0, 100], false, 0, 0.5, 0)).toEqual([10, 15])
  expect(moved([10, 20], [0, 100], false, 0, 0.5, 1)).toEqual([15, 20])
  expect(moved([10, 20], [0, 100], false, 0, 1e9, 0.5)).toEqual([0, 100])
})
it('on a logarithmic axis shares are those of the logarithm', () => {
  const [low, high] = moved([10, 1000], [1, 1e6], true, 0.5, 1, 0.5)
  expect(low).toBeCloseTo(100)
  expect(high).toBeCloseTo(10_000)
})
it('no closer than numbers can tell apart', () => {
  const [low, high] = moved([1e6, 1e6 + 1e-6], [0, 2e6], false, 0, 1e-9, 0.5)
  expect([low, high]).toEqual([1e6, 1e6 + 1e-6])
})
it('without ends it moves anywhere', () => {
  expect(moved([0, 1], [-Number.MAX_VALUE, Number.MAX_VALUE], false, -3, 1, 0.5)).toEqual([-3, -2])
  expect(moved([0, 1], [-Number.MAX_VALUE, Number.MAX_VALUE], false, 0, 2, 0.5)).toEqual([-0.5, 1.5])
  expect(moved([1, 10], [Number.MIN_VALUE, Number.MAX_VALUE], true, 1, 1, 0.5).map(Math.round)).toEqual([10, 100])
})
