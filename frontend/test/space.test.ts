import { expect, it } from 'vitest'
import { FIRST, seen, spanOf, turned, unit } from '../src/views/space'

it('looks from above: what is higher stands higher, what is near is near', () => {
  const [, low] = seen(FIRST, 0, 0, -1)
  const [, high] = seen(FIRST, 0, 0, 1)
  expect(high).toBeLessThan(low)
  const ahead = { yaw: 0, pitch: 0, zoom: 1 }
  expect(seen(ahead, 0, -1, 0)[2]).toBeGreaterThan(seen(ahead, 0, 1, 0)[2])
  expect(seen(ahead, 1, 0, 0)[0]).toBe(1)
})
it('turns without getting larger, and not over the top', () => {
  const [x, y, near] = seen(turned(FIRST, { yaw: 2, pitch: 0.3 }), 1, 1, 1)
  expect(Math.hypot(x, y, near * Math.sqrt(3))).toBeCloseTo(Math.sqrt(3))
  expect(turned(FIRST, { pitch: 9 }).pitch).toBeCloseTo(Math.PI / 2)
  expect(turned(FIRST, { zoom: 100 }).zoom).toBe(6)
})
it('spans what is finite', () => {
  expect(spanOf([[1, NaN, 3], [Infinity]])).toEqual([1, 3])
  expect(spanOf([[]])).toEqual([0, 1])
  expect(unit([0, 10], 5)).toBe(0)
  expect(unit([3, 3], 3)).toBe(0)
})
