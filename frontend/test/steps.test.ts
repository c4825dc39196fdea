// Views that show one record at a time: their steps, and what they show at one.

import { expect, test } from 'vitest'
import { asOf, stepsOf } from '../src/views/asOf'
import { Records } from '../src/views/records'
import { STANDARD, type Series } from '../src/views/series'

function seriesOf(steps: number[], value: (step: number) => unknown): Series {
  const records = new Records()
  const step = Float64Array.from(steps)
  records.push({ step, wall: step.map((at) => 1000 + at), index: step.map((_, i) => i), values: steps.map(value) })
  return { id: 'a', label: 'a', style: { color: 'red', dash: [] }, records, started: null, second: false }
}

const image = (step: number) => ({ png: new Uint8Array([step]), caption: `at ${step}` })

test('steps of several streams come once and in order, with their times', () => {
  const both = [seriesOf([0, 10, 30], image), seriesOf([10, 20], image)]
  expect(stepsOf('images', both, STANDARD)).toEqual({ steps: [0, 10, 20, 30], walls: [1000, 1010, 1020, 1030] })
})

test('a view over all steps has no slider, unless it shows frames', () => {
  const one = [seriesOf([0, 1], () => ({ a: 1 }))]
  expect(stepsOf('line', one, STANDARD).steps).toEqual([])
  expect(stepsOf('line', one, { ...STANDARD, frames: true }).steps).toEqual([0, 1])
  expect(stepsOf('histogram', one, { ...STANDARD, over: 'ridge' }).steps).toEqual([])
  expect(stepsOf('histogram', one, { ...STANDARD, over: 'latest' }).steps).toEqual([0, 1])
  for (const view of ['images', 'picture', 'heatmap', 'bars', 'table']) expect(stepsOf(view, one, STANDARD).steps).toEqual([0, 1])
})

test('each stream shows its last record until the step', () => {
  const both = [seriesOf([0, 10, 30], image), seriesOf([10, 20], image)]
  const latest = asOf(both, 20).map(({ records }) => records.values.at(-1)!.step)
  expect(latest).toEqual([10, 20])
  expect(asOf(both, 5).map(({ records }) => records.n)).toEqual([1, 0])
  expect(both.map(({ records }) => records.values.length)).toEqual([3, 2])
})
