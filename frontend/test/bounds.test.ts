import { expect, test } from 'vitest'
import { extentOf, lowerBound, nearest, rangeOf } from '../src/views/bounds'

const line = (y: number[]) => ({ x: Float64Array.from(y, (_, i) => i), y: Float64Array.from(y) })
const range = (y: number[], options = {}) => rangeOf([line(y)], [0, y.length], { log: false, clip: false, ...options })

test('looking up', () => {
  const x = [1, 2, 2, 5]
  expect([0, 1, 2, 3, 6].map((at) => lowerBound(x, at))).toEqual([0, 0, 1, 3, 4])
  expect([0, 1.4, 1.6, 3.4, 9].map((at) => nearest(x, at))).toEqual([0, 0, 1, 2, 3])
  expect(nearest([], 1)).toBe(-1)
})

test('the extent; of a log axis above zero', () => {
  expect(extentOf([[-1, 2], [0, 5]], false)).toEqual([-1, 5])
  expect(extentOf([[-1, 2], [0, 5]], true)).toEqual([2, 5])
  expect(extentOf([[-1]], true)).toBeNull()
})

test('NaN and infinities do not stretch the range', () => {
  const [low, high] = range([1, NaN, Infinity, -Infinity, 2])!
  expect(low).toBeCloseTo(0.94)
  expect(high).toBeCloseTo(2.06)
  expect(range([NaN, Infinity])).toBeNull()
})

test('an outlier is clipped', () => {
  const y = Array.from({ length: 500 }, (_, i) => i % 10)
  y[77] = 1e6
  expect(range(y)![1]).toBeGreaterThan(1e6)
  expect(range(y, { clip: true })![1]).toBeLessThan(11)
})

test('few points are never clipped', () => expect(range([0, 0, 100], { clip: true })![1]).toBeGreaterThan(100))

test('a log range leaves out what is not above zero', () => {
  const [low, high] = range([-5, 0, 0.1, 10], { log: true })!
  expect(low).toBeGreaterThan(0.05)
  expect(high).toBeLessThan(20)
})

test('a constant has air around it, and its rounding is no signal', () => {
  expect(range([3, 3])).toEqual([2.7, 3.3])
  expect(range([0, 0])).toEqual([-1, 1])
  const [low, high] = range([3, 3 + 4e-16, 3 - 4e-16])!
  expect(high - low).toBeCloseTo(0.6)
})

test('only what is in view counts', () => {
  expect(rangeOf([line([0, 0, 0, 0, 100])], [0, 2], { log: false, clip: false })).toEqual([-1, 1])
})
