import { expect, test } from 'vitest'
import cases from '../../tests/views/smoothing.json'
import { Records } from '../src/views/records'
import { smooth, smoothByPoint } from '../src/views/smooth'

/** Of values whose standard deviation is 4.5, over buckets of hundreds of records. */
const TOLERANCE = 0.1

const columnOf = (column: (number | string | null)[]) => Float64Array.from(column, (one) => (one === null ? NaN : one === 'inf' ? Infinity : one === '-inf' ? -Infinity : Number(one)))

test.each(cases)('the numbers are those of Python: $name', ({ x, y, weight, extent, smoothed, means }) => {
  const expected = columnOf(smoothed)
  smooth(Float64Array.from(x), columnOf(y), weight, extent, means && columnOf(means)).forEach((value, i) => {
    if (Number.isFinite(expected[i]!)) expect(Math.abs(value - expected[i]!)).toBeLessThan(1e-9 * (1 + Math.abs(expected[i]!)))
    else expect(value).toBe(expected[i])
  })
})

const skewed = Float64Array.from({ length: 1_000_000 }, (_, i) => Math.log(((i * 7919) % 1_000_003) / 1_000_003 + 1e-6) ** 2 + 3 * Math.sin(i / 1e5))

test.each([0.6, 0.9, 0.99])('a thinned line is smoothed as the whole one, with a weight of %s', (weight) => {
  const n = skewed.length
  const whole = smooth(Float64Array.from(skewed.keys()), skewed, weight, n)
  const records = new Records()
  for (let from = 0; from < n; from += 70_001) {
    const index = Float64Array.from({ length: Math.min(70_001, n - from) }, (_, i) => from + i)
    records.push({ step: index, wall: index, index, y: skewed.slice(from, from + index.length) })
  }
  const { step, y } = records.numbers
  const later = [...step.keys()].filter((i) => step[i]! > n / 100)
  const error = (found: Float64Array) => Math.max(...later.map((i) => Math.abs(found[i]! - whole[step[i]!]!)))
  expect(y.length).toBeLessThan(20_000)
  expect(error(smooth(step, y, weight, n, records.means))).toBeLessThan(TOLERANCE)
  // Without the means, the average is one of extremes.
  expect(error(smooth(step, y, weight, n))).toBeGreaterThan(1)
})

test('no weight, no work', () => {
  const y = Float64Array.of(1, 2)
  expect(smooth([0, 1], y, 0, 1)).toBe(y)
})

test('by point, the numbers are those of TensorBoard: 0.6 over 1, 2, 3, NaN, 4', () => {
  // 0.4·1/(1−0.6); (0.6·0.4 + 0.4·2)/(1−0.36); …
  const found = smoothByPoint(Float64Array.of(1, 2, 3, NaN, 4), 0.6)
  expect([...found].map((one) => Number(one.toFixed(6)))).toEqual([1, 1.625, 2.326531, NaN, 3.095588])
  expect([...smoothByPoint(Float64Array.of(7, 7, 7), 0.9)]).toEqual([7, 7, 7])
  expect([...smoothByPoint(Float64Array.of(1, 9, 1), 0.5, [NaN, NaN, 3])]).toEqual([...smoothByPoint(Float64Array.of(1, 9, 3), 0.5)])
})
