// Lines whose run began again, or whose steps go back.

import { describe, expect, it } from 'vitest'
import cases from '../../tests/views/passes.json'
import { readings } from '../src/views/Legend'
import { partsOf, passesOf } from '../src/views/passes'
import { Records } from '../src/views/records'
import { linesOf, restartsOf, STANDARD, type Series } from '../src/views/series'
import { rowsOf } from '../src/views/Written'

function seriesOf(step: number[], restarts: number[], values?: unknown[]): Series {
  const records = new Records()
  const index = Float64Array.from(step.keys())
  const at = { step: Float64Array.from(step), wall: index.map((i) => 1000 + i), index, restarts }
  records.push(values ? { ...at, values } : { ...at, y: Float64Array.from(step, (s, i) => s + i / 10) })
  return { id: 'a', label: 'loss', style: { color: 'red', dash: [] }, records, started: null, second: false }
}

const again = [...Array(50).keys(), ...Array(30).keys()]

it.each(cases)('are those of Python: $name', ({ x, restarts, history, parts }) => {
  const passes = passesOf(Float64Array.from(x), restarts, true)
  const found = passes && partsOf(Float64Array.from(x), passes, history)
  if (!parts) return expect(found).toBeNull()
  expect(found!.map(({ start, end }) => [start, end])).toEqual(parts.map(([start, end]) => [start, end]))
  found!.forEach(({ alpha }, i) => expect(alpha).toBeCloseTo(parts[i]![2]!))
})

describe('a line', () => {
  it.each([[[50]], [[]]])('never goes back, and what was done again is faint', (restarts) => {
    for (const smooth of [0, 0.9]) {
      const lines = linesOf([seriesOf(again, restarts)], { ...STANDARD, smooth }, null)
      expect(lines.map(({ x }) => x.length)).toEqual([50, 30])
      expect(lines.every(({ x }) => x.every((at, i) => i === 0 || at > x[i - 1]!))).toBe(true)
      expect(lines[0]).toMatchObject({ earlier: 'a', label: 'loss, pass 1' })
      expect(lines[0]!.alpha!).toBeLessThan(1)
      expect(lines[1]).toMatchObject({ id: 'a', label: 'loss', state: 'earlier passes faint' })
    }
  })
  it('is broken where its run goes on, and its place is marked', () => {
    const series = [seriesOf([...Array(80).keys()], [50])]
    const lines = linesOf(series, STANDARD, null)
    expect(lines.map(({ x, alpha = 1, state = '' }) => [x.length, alpha, state])).toEqual([[50, 1, ''], [30, 1, '']])
    expect(restartsOf(series, STANDARD)).toEqual([{ x: 50, label: 'restarted', written: true }])
    expect(restartsOf(series, { ...STANDARD, x: 'relative' })[0]!.x).toBe(50)
    expect(readings(lines, 20).map(({ line }) => line.id)).toEqual(['a 0 1'])
    expect(readings(lines, 60).map(({ line }) => line.id)).toEqual(['a'])
  })
  it('is one line over times, though its steps go back', () => {
    expect(linesOf([seriesOf(again, [])], { ...STANDARD, x: 'wall' }, null)).toHaveLength(1)
  })
  it('goes on, or is in two parts, where a clock was set back', () => {
    const records = new Records()
    const index = Float64Array.from(Array(80).keys())
    records.push({ step: index, wall: index.map((i) => 1000 + i - (i >= 50 ? 20 : 0)), index, y: index })
    const series: Series[] = [{ id: 'a', label: 'loss', style: { color: 'red', dash: [] }, records, started: 1000, second: false }]
    const [line] = linesOf(series, { ...STANDARD, x: 'relative' }, null)
    expect([...line!.x]).toEqual([...Array(50).keys(), ...Array.from({ length: 30 }, (_, i) => 49 + i)])
    const parts = linesOf(series, { ...STANDARD, x: 'wall' }, null)
    expect(parts.map(({ x, alpha = 1 }) => [x.length, alpha])).toEqual([[21, 0.31], [30, 1], [30, 1]])
    expect(linesOf(series, STANDARD, null)).toHaveLength(1)
  })
  it('of records out of order is in the order of steps', () => {
    const lines = linesOf([seriesOf([3, 1, 2, 0, 5, 4, 7, 6], [])], STANDARD, null)
    expect(lines.map(({ x }) => [...x])).toEqual([[0, 1, 2, 3, 4, 5, 6, 7]])
  })
  it('of some of the newest records may be in two passes', () => {
    expect(linesOf([seriesOf([...Array(50).keys(), ...Array(10).keys()], [50])], { ...STANDARD, last: 20 }, null).map(({ x }) => x.length)).toEqual([10, 10])
  })
})

it('tables and logs have a row for a restart', () => {
  const series = seriesOf([0, 1, 2, 0, 1], [3], ['a', 'b', 'c', 'd', 'e'])
  expect(rowsOf([series], 0).map(({ value, mark = false }) => (mark ? `-- ${value}` : value))).toEqual(['e', 'd', '-- restarted', 'c', 'b', 'a'])
})
