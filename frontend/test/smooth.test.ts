import { expect, test } from 'vitest'
import cases from '../../tests/views/smoothing.json'
import { smooth } from '../src/views/smooth'

const columnOf = (column: (number | string | null)[]) => Float64Array.from(column, (one) => (one === null ? NaN : one === 'inf' ? Infinity : one === '-inf' ? -Infinity : Number(one)))

test.each(cases)('the numbers are those of Python: $name', ({ x, y, weight, extent, smoothed }) => {
  const expected = columnOf(smoothed)
  smooth(Float64Array.from(x), columnOf(y), weight, extent).forEach((value, i) => {
    if (Number.isFinite(expected[i]!)) expect(Math.abs(value - expected[i]!)).toBeLessThan(1e-9 * (1 + Math.abs(expected[i]!)))
    else expect(value).toBe(expected[i])
  })
})

test('no weight, no work', () => {
  const y = Float64Array.of(1, 2)
  expect(smooth([0, 1], y, 0, 1)).toBe(y)
})
