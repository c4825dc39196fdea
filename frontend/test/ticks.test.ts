import { expect, test } from 'vitest'
import { ticksOf, type AxisKind } from '../src/views/ticks'

const said = (kind: AxisKind, low: number, high: number, n = 5) => {
  const { at, label } = ticksOf(kind, [low, high], n)
  return at.map(label)
}

test.each([
  [0, 1, ['0', '0.2', '0.4', '0.6', '0.8', '1']],
  [-3, 3, ['−2', '0', '2']],
  [0, 200_000, ['0', '50k', '100k', '150k', '200k']],
  [1.0001, 1.0004, ['1.0001', '1.0002', '1.0003', '1.0004']],
])('from %d to %d', (low, high, labels) => expect(said('number', low, high)).toEqual(labels))

test('labels of neighbours differ however close they are', () => {
  const labels = said('number', 123456.001, 123456.004)
  expect(new Set(labels).size).toBe(labels.length)
})

test('a log axis', () => {
  expect(said('log', 1e-4, 1e2, 6)).toEqual(['1e−4', '1e−3', '1e−2', '1e−1', '1', '10', '100'])
  expect(said('log', 1, 1e7, 8)).toEqual(['1', '10', '100', '1000', '10k', '100k', '1M', '10M'])
  expect(said('log', 1e290, 1e300, 6)).toEqual(['1e290', '1e292', '1e294', '1e296', '1e298', '1e300'])
  expect(said('log', 1, 50, 8)).toEqual(['1', '2', '5', '10', '20', '50'])
})

test('durations stand at whole minutes and hours', () => {
  expect(said('relative', 0, 3600, 4)).toEqual(['0 s', '15 min', '30 min', '45 min', '1 h 00 min'])
})

test('under a second, neighbours differ', () => {
  expect(said('relative', 12.34, 12.37, 3)).toEqual(['12.34 s', '12.35 s', '12.36 s', '12.37 s'])
  expect(said('relative', 0, 0.0004, 4)).toEqual(['0 s', '0.0001 s', '0.0002 s', '0.0003 s', '0.0004 s'])
  expect(said('relative', 65.2, 65.6, 2)).toEqual(['1 min 5.2 s', '1 min 5.4 s', '1 min 5.6 s'])
  const at = new Date(2026, 4, 6, 21, 30, 5).getTime() / 1000
  expect(said('wall', at, at + 0.39, 2)).toEqual(['21:30:05.0', '21:30:05.2'])
})

test('wall time stands at whole hours of the reader, with the day at midnight', () => {
  const from = new Date(2026, 4, 6, 21, 30).getTime() / 1000
  expect(said('wall', from, from + 4 * 3600, 4)).toEqual(['22:00', '23:00', '05-07', '01:00'])
})

test('never endless', () => expect(said('number', 0, 1, 1e6).length).toBeLessThanOrEqual(100))
