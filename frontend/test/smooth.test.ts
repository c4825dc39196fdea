import { expect, test } from 'vitest'
import { smooth } from '../src/views/smooth'

test('by hand: 1, 2, 3 with weight 0.5', () => {
  // s: 0.5, 1.25, 2.125; mass: 0.5, 0.75, 0.875
  const by_hand = [0.5 / 0.5, 1.25 / 0.75, 2.125 / 0.875]
  smooth(Float64Array.of(1, 2, 3), 0.5).forEach((value, i) => expect(value).toBeCloseTo(by_hand[i]!, 14))
})

test('the first point stays, and a constant is one', () => {
  const constant = smooth(new Float64Array(500).fill(3), 0.99)
  expect(constant[0]).toBe(3)
  for (const value of constant) expect(value).toBeCloseTo(3, 12)
})

test('what is no number stays where it is and is not mixed in', () => {
  const [a, nan, inf, b] = smooth(Float64Array.of(1, NaN, -Infinity, 2), 0.5)
  expect([a, nan, inf]).toEqual([1, NaN, -Infinity])
  expect(b).toBeCloseTo(1.25 / 0.75, 14)
})

test('no weight, no work', () => {
  const y = Float64Array.of(1, 2)
  expect(smooth(y, 0)).toBe(y)
})
