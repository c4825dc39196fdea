import { expect, test } from 'vitest'
import { axisOf, bestSoFar, nextAlong, within } from '../src/pages/runs/linked/axis'

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
