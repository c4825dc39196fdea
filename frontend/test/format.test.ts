import { expect, test } from 'vitest'
import { count, duration, exact, meanAndDeviation, named, number, value } from '../src/views/format'
import { neat } from '../src/views/span'

test.each([
  [0, '0'], [0.1 + 0.2, '0.3'], [-1.5, '−1.5'], [123456, '123456'], [1234567, '1.235e6'], [0.000123, '1.23e−4'],
  [NaN, 'NaN'], [Infinity, '+∞'], [-Infinity, '−∞'], [1e-300, '1e−300'],
])('number %d', (n, text) => expect(number(n)).toBe(text))

test.each([[950, '950'], [12_345, '12.3k'], [4e6, '4M'], [2.5e9, '2.5G'], [2 ** 40, '1.1T'], [1.5e18, '1.5e18']])('count %d', (n, text) => expect(count(n)).toBe(text))
test.each([[950, '950'], [27_213, '27,213'], [999_999, '999,999'], [12_345_678, '12.3M']])('exact %d', (n, text) => expect(exact(n)).toBe(text))

test.each([[0.25, '0.25 s'], [12, '12 s'], [200, '3 min 20 s'], [7500, '2 h 05 min'], [273_600, '3 d 4 h'], [-60, '−1 min']])('duration %d', (s, text) =>
  expect(duration(s)).toBe(text),
)

test('any value on one line', () => expect([0.1, 'adam', true, null, [1, 2], undefined].map(value)).toEqual(['0.1', 'adam', 'true', 'null', '[1,2]', '']))

test('a zoom in few digits, fine for its width, and for a log axis', () => {
  expect(neat([61728.08641975308, 69135.45679012345])).toEqual([61728, 69135])
  expect(neat([0.123456, 1234.5678])).toEqual([0.1235, 1235])
  const [low, high] = neat([1795271721.7771, 1795271722.1234])
  expect(high - low).toBeCloseTo(0.3463, 3)
})

test.each([
  [0.92, 0.0043, '0.9200', '0.0043'], [12.5, 1.25, '12.5', '1.3'], [-3, 0.5, '−3.00', '0.5'], [1500, 320, '1500', '320'],
  [2e9, 3e7, '2e9', '3e7'], [0.5, 0, '0.5', '0'], [NaN, NaN, 'NaN', 'NaN'],
])('%d ± %d', (mean, deviation, ...shown) => expect(meanAndDeviation(mean, deviation)).toEqual(shown))

test('neighbours on an axis are written alike', () => {
  expect([999_999, 999_999.5, 1e6, 1_000_000.5].map((v) => number(v, 8))).toEqual(['999999', '999999.5', '1000000', '1000000.5'])
})

test('calls what a machine does by its name and its unit', () => {
  expect(named('process_memory_gb')).toEqual(['process memory', 'GB'])
  expect(named('gpu0_percent')).toEqual(['gpu0', '%'])
  expect(named('disk_read_mb_s')).toEqual(['disk read', 'MB/s'])
  expect(named('fans')).toEqual(['fans', ''])
})
