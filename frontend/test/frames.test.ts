// Frames: each record is one picture, older ones behind it, over the names in it.

import { describe, expect, test } from 'vitest'
import { Records } from '../src/views/records'
import { linesOf, placesOf, STANDARD, type Series } from '../src/views/series'
import { placeTicks } from '../src/views/ticks'

const options = { ...STANDARD, frames: true, history: 2 }

function seriesOf(...values: unknown[]): Series {
  const records = new Records()
  const n = Float64Array.from(values.keys())
  records.push({ step: n, wall: n, index: n, values })
  return { id: 'a', label: 'norms', style: { color: 'red', dash: [] }, records, started: null, second: false }
}

describe('frames of mappings', () => {
  const series = [seriesOf({ dense: 1, out: 2 }, { dense: 3, out: 4 }, { dense: 5 }, { out: 8, dense: 7 })]

  test('stand over the names of the newest, whatever order the others came in', () => {
    expect(placesOf(series, options)).toEqual(['out', 'dense'])
    expect(linesOf(series, options, null).map(({ y }) => [...y])).toEqual([[4, 3], [NaN, 5], [8, 7]])
  })

  test('fade with age', () => {
    const strengths = linesOf(series, options, null).map(({ alpha }) => alpha!)
    expect(strengths.at(-1)).toBe(1)
    expect([...strengths].sort((a, b) => a - b)).toEqual(strengths)
  })

  test('are no frames unless asked for, and vectors have no names', () => {
    expect(placesOf(series, STANDARD)).toBeUndefined()
    expect(placesOf([seriesOf([1, 2])], options)).toBeUndefined()
  })
})

describe('ticks at names', () => {
  const places = Array.from({ length: 100 }, (_, i) => `layers/${i}/a long name of a dense layer`)

  test('are no more than have room, within what is in view', () => {
    const { at } = placeTicks(places, [-0.5, 99.5], 10)
    expect(at.length).toBeLessThanOrEqual(10)
    expect(at[0]).toBe(0)
    expect(placeTicks(places, [3.2, 5.9], 10).at).toEqual([4, 5])
  })

  test('keep the ends of long names', () => {
    const { label } = placeTicks(places, [0, 99], 10)
    expect(label(7)).toBe('…f a dense layer')
    expect(placeTicks(['out'], [0, 0], 3).label(0)).toBe('out')
  })
})
