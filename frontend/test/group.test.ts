import { expect, test } from 'vitest'
import { meanOf, resampled } from '../src/views/group'

const line = (x: number[], y: number[]) => ({ x: Float64Array.from(x), y: Float64Array.from(y) })

test('mean and deviation of a sample', () => {
  const { x, y, low, high, n } = meanOf([line([0, 1], [1, 4]), line([0, 1], [3, 4]), line([0, 1], [5, 4])], 'std')
  expect([...x]).toEqual([0, 1])
  expect([...y]).toEqual([3, 4])
  expect([...low]).toEqual([1, 4])
  expect([...high]).toEqual([5, 4])
  expect([...n]).toEqual([3, 3])
})

test('the range', () => {
  const { low, high } = meanOf([line([0], [1]), line([0], [2]), line([0], [6])], 'range')
  expect([low[0], high[0]]).toEqual([1, 6])
})

test('between its points a line is straight, outside of them it does not count', () => {
  expect([...resampled(line([0, 2], [0, 4]), Float64Array.of(-1, 0, 1, 2, 3))]).toEqual([NaN, 0, 2, 4, NaN])
  const { x, y, n } = meanOf([line([0, 2], [0, 4]), line([1, 5], [10, 10])], 'none')
  expect([...x]).toEqual([0, 1, 2, 5])
  expect([...y]).toEqual([0, 6, 7, 10])
  expect([...n]).toEqual([1, 2, 2, 1])
})

test('NaN and infinities count nowhere', () => {
  const { y, low, high, n } = meanOf([line([0, 1], [NaN, NaN]), line([0, 1], [2, Infinity])], 'std')
  expect([...y]).toEqual([2, NaN])
  expect([...low, ...high]).toEqual([2, NaN, 2, NaN])
  expect([...n]).toEqual([1, 0])
})
