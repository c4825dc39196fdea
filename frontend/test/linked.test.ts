import { expect, test } from 'vitest'
import { axisOf, bestSoFar, isWide, nextAlong, within } from '../src/data/axis'
import { rankCorrelation } from '../src/pages/runs/linked/correlation'

const places = (values: unknown[], log = false) => [...axisOf('lr', values, log).places]

test('numbers have places between the lowest and the highest, other values do not', () => {
  expect(places([1, 3, 2, undefined, NaN, Infinity, -Infinity])).toEqual([0, 1, 0.5, NaN, NaN, 1, 0])
  expect(places([0.1, Infinity, -Infinity], true)).toEqual([expect.closeTo(0.5), 1, NaN])
  expect(places([0.001, 0.1, 0.01, 0, -1], true)).toEqual([0, 1, expect.closeTo(0.5), NaN, NaN])
  expect(places([4, 4])).toEqual([0.5, 0.5])
  expect(places([4], true)).toEqual([expect.closeTo(0.5)])
  expect(axisOf('lr', [0.001, 0.1], true).ticks(3)).toContainEqual({ at: expect.closeTo(0.5), text: '0.01' })
})

test('texts stand side by side, in a natural order', () => {
  const axis = axisOf('net', ['b10', 'b9', 'b10', null, 'a', true], false)
  expect([axis.numeric, axis.texts]).toEqual([false, ['a', 'b9', 'b10', 'true']])
  expect([...axis.places]).toEqual([2 / 3, 1 / 3, 2 / 3, NaN, 0, 1])
  expect(axisOf('net', ['only'], false).ticks(3)).toEqual([{ at: 0.5, text: 'only' }])
  expect(axisOf('net', [undefined], false).ticks(3)).toEqual([])
})

test('the best so far, by time and not by the order of the runs', () => {
  const [started, loss] = [[3, 1, 2, 4, 5], [0.2, 0.5, 0.7, NaN, 0.1]]
  expect(bestSoFar(started, loss, true)).toEqual([1, 0, 4])
  expect(bestSoFar(started, loss, false)).toEqual([1, 2])
  expect(bestSoFar([NaN], [1], true)).toEqual([])
})

test('the keyboard goes along an axis, over what has no place, and stops at its ends', () => {
  const along = [0.5, NaN, 0, 1]
  expect([nextAlong(along, -1, 1), nextAlong(along, 2, 1), nextAlong(along, 0, 1), nextAlong(along, 3, 1)]).toEqual([2, 0, 3, 3])
  expect([nextAlong(along, -1, -1), nextAlong(along, 2, -1), nextAlong([NaN], -1, 1)]).toEqual([3, 2, -1])
})

test('ranges on several axes hold together', () => {
  const [a, b] = [[0, 0.5, 1, NaN], [1, 0.2, 0.9, 0.9]]
  expect(within([{ places: a, span: [0.4, 1] }], 4)).toEqual([1, 2])
  expect(within([{ places: a, span: [0.4, 1] }, { places: b, span: [0.5, 1] }], 4)).toEqual([2])
})

test('the ticks of settings are the values that there are', () => {
  const texts = (values: unknown[], log = false, n = 5) => axisOf('lr', values, log).ticks(n).map(({ text }) => text)
  expect(texts([0.1, 0.003, 0.1, 0.03], true)).toEqual(['0.003', '0.03', '0.1'])
  expect(texts([1, 2, 3])).toEqual(['1', '2', '3'])
  expect(texts([1, 2, 3, 1000], false, 3)).toEqual(['1', '1000'])
  expect(texts([0.12, 0.57, 0.93]).length).toBeGreaterThan(3)
})

test('values that span two decades are far apart', () => {
  expect([[0.001, 0.1], [1, 99], [0, 1000], [-1, 100], [1, 100, 'a', null], []].map(isWide)).toEqual([true, false, false, false, true, false])
})

test('a rank correlation is that of the ranks, equal values share theirs', () => {
  const rho = (x: unknown[], y: unknown[]) => rankCorrelation(x, y).rho
  expect(rho([1, 10, 100, 1000], [1, 2, 3, 4])).toBeCloseTo(1)
  expect(rho([4, 3, 2, 1], [1, 4, 9, 16])).toBeCloseTo(-1)
  // scipy.stats.spearmanr([1, 2, 2, 3, 5], [2, 1, 4, 4, 3])
  expect(rho([1, 2, 2, 3, 5], [2, 1, 4, 4, 3])).toBeCloseTo(0.39473684210526316)
  expect(rho([true, false, true, false], [3, 1, 4, 2])).toBeCloseTo(0.8944271909999159)
  expect(rankCorrelation([1, NaN, 'x', null, 2, 3], [1, 2, 3, 4, undefined, Infinity])).toEqual({ rho: expect.closeTo(1), n: 2 })
  expect(rho([1, 1, 1], [1, 2, 3])).toBeNaN()
  expect(rankCorrelation([], [])).toEqual({ rho: NaN, n: 0 })
})
