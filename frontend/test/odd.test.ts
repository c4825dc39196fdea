// What comes of programs that go wrong: it is drawn as far as it can be, and nothing breaks.

import type { Span } from '../src/views/span'
import { describe, expect, it } from 'vitest'
import { layersOf } from '../src/views/BarChart'
import { rangeOf } from '../src/views/bounds'
import { modelOf, type ChartProps } from '../src/views/Chart'
import { batchOf } from '../src/views/mount'
import { MAX_LINES, Records } from '../src/views/records'
import { csvOf } from '../src/views/recordsCsv'
import { framesOf } from '../src/views/Ridge'
import { linesOf, STANDARD, type Series } from '../src/views/series'
import { rowsOf } from '../src/views/Written'

const take = (...parts: Parameters<typeof batchOf>[0][]): Records => {
  const records = new Records(2 ** 20)
  for (const part of parts) records.push(batchOf(part, records.n))
  return records
}
const count = (n: number, from = 0) => Array.from({ length: n }, (_, i) => from + i)
const seriesOf = (records: Records): Series => ({ id: 'a', label: 'a', style: { color: '#000000', dash: [] }, records, started: null, second: false })
const lines = (records: Records, options = STANDARD) => linesOf([seriesOf(records)], options, null)
const ink = { axis: '', grid: '', text: '', ground: '', mark: '' }
const model = (records: Records, more: Partial<ChartProps> = {}) => modelOf({ lines: lines(records), kind: 'step', xlog: false, ylog: false, clip: false, zoom: null, yzoom: null, ...more } as ChartProps, ink)

describe('a million points', () => {
  const N = 1_000_000
  const records = new Records(2 ** 20)
  const y = Float64Array.from({ length: N }, (_, i) => (i === 654_321 ? 9 : Math.sin(i)))
  const step = Float64Array.from(count(N))
  for (let from = 0; from < N; from += 300_000) records.push({ step: step.slice(from, from + 300_000), wall: step.slice(from, from + 300_000), index: step.slice(from, from + 300_000), y: y.slice(from, from + 300_000) })
  it('are all held', () => {
    const held = records.numbers.y
    expect(held.length).toBe(N)
    expect(held.every((value, i) => value === y[i])).toBe(true)
  })
  it('are drawn with their spike and their last point, and with every point when one comes near', () => {
    const [line] = lines(records)
    expect(line!.y).toContain(9)
    expect(line!.x[line!.x.length - 1]).toBe(N - 1)
    const [near] = linesOf([seriesOf(records)], STANDARD, [654_300, 654_399])
    expect(near!.x).toEqual(step.slice(654_299, 654_400))
  })
  it('beyond what is held are thinned, the latest kept', () => {
    const few = new Records(1_000)
    few.push({ step, wall: step, index: step, y })
    expect(few.numbers.y.length).toBeLessThanOrEqual(1_000)
    expect(few.numbers.step[few.numbers.step.length - 1]).toBe(N - 1)
    expect(few.numbers.y).toContain(9)
  })
})

describe('NaN and infinities', () => {
  it('everywhere leave an empty chart with its marks', () => {
    const found = model(take({ step: [0, 1, 2], y: [NaN, Infinity, -Infinity] }))
    expect(found).toMatchObject({ xs: [0, 2], ys: [0, 1] })
  })
  it('as steps have no place', () => {
    const [line] = lines(take({ step: [0, NaN, 2, Infinity, 1], y: [1, 2, 3, 4, 5] }))
    expect([Array.from(line!.x), Array.from(line!.y)]).toEqual([[0, 1, 2], [1, 5, 3]])
  })
  it('in mappings, vectors and pairs are taken', () => {
    const records = take({ step: [0, 1, 2], values: [{ a: NaN, b: 1 }, [NaN, Infinity, 1, 2], [NaN, 3]] })
    expect(lines(records).map(({ label }) => label)).toEqual(['a', 'b', 'a (median, 10–90 %)'])
    expect(rangeOf(lines(records).map(({ x, y }) => ({ x, y })), [0, 2], { log: false, clip: false })![1]).toBeGreaterThan(1)
    expect(Array.from(records.points.y)).toEqual([3])
  })
})

it('an empty stream draws nothing', () => {
  const records = take({ step: [], y: [] }, { step: [], values: [] })
  expect(records.n).toBe(0)
  expect(lines(records)).toEqual([])
  expect(model(records)).toBe('No points yet')
  expect([rowsOf([seriesOf(records)], 0), layersOf([seriesOf(records)], STANDARD), framesOf(seriesOf(records))]).toEqual([[], [], []])
})

it('a stream whose kind changes keeps what came before', () => {
  const records = take({ step: [0, 1], y: [5, 6] }, { step: [2, 3], values: ['text', { a: 1 }] }, { step: [4], y: [7] })
  expect(rowsOf([seriesOf(records)], 0).map(({ step, value }) => [step, value])).toEqual([[4, 7], [3, { a: 1 }], [2, 'text'], [1, 6], [0, 5]])
  expect(lines(records).map(({ y }) => Array.from(y))).toEqual([[5, 6, 7], [1]])
  expect(csvOf([{ name: '<b>"x"', records }]).split('\n').filter(Boolean)).toHaveLength(6)
})

it('steps that go back are put in order, and none is taken for one that came before', () => {
  const records = take({ step: [0, 1, 2, 3], y: [1, 2, 3, 4] }, { step: [1, 2], y: [8, 9] })
  const [line] = lines(records)
  expect([Array.from(line!.x), Array.from(line!.y)]).toEqual([[0, 1, 1, 2, 2, 3], [1, 2, 8, 3, 9, 4]])
  expect(Array.from(lines(records, { ...STANDARD, x: 'index' })[0]!.y)).toEqual([1, 2, 3, 4, 8, 9])
})

it('a line that grows is smoothed and put in order as one that came at once', () => {
  const y = count(40).map((i) => (i % 9 === 4 ? NaN : Math.sin(i)))
  const steps = count(40).map((i) => (i > 30 ? i - 10 : i))
  for (const options of [{ ...STANDARD, smooth: 0.7 }, { ...STANDARD, smooth: 0.7, x: 'relative' as const }, { ...STANDARD, x: 'index' as const }]) {
    const grown = new Records(2 ** 20)
    for (let from = 0; from < 40; from += 7) {
      grown.push(batchOf({ step: steps.slice(from, from + 7), wall: count(40, 100).slice(from, from + 7), y: y.slice(from, from + 7) }, grown.n))
      lines(grown, options)
    }
    const [one, other] = [lines(grown, options), lines(take({ step: steps, wall: count(40, 100), y }), options)]
    expect(one).toEqual(other)
  }
})

it('a line that was thinned is put in order and smoothed as one that came at once', () => {
  const [grown, whole] = [new Records(64), new Records(64)]
  const options = { ...STANDARD, smooth: 0.5 }
  for (const i of count(200)) {
    grown.push(batchOf({ step: [i], y: [Math.cos(i)] }, i))
    lines(grown, options)
    whole.push(batchOf({ step: [i], y: [Math.cos(i)] }, i))
  }
  expect(lines(grown, options)).toEqual(lines(whole, options))
})

it('ragged vectors are bars, frames and bands of their own lengths', () => {
  const records = take({ step: count(3), values: [[1, 2, 3, 4], [1, 2, 3, 4, 5, 6], []] })
  expect(lines(records)[0]!.y).toHaveLength(2)
  expect(lines(records, { ...STANDARD, frames: true }).map(({ y }) => y.length)).toEqual([4, 6])
  expect(layersOf([seriesOf(records)], { ...STANDARD, frames: true })[0]).toMatchObject({ now: { names: count(6).map(String) }, older: [{ names: count(4).map(String) }] })
})

describe('a mapping of 10,000 names', () => {
  const mapping = Object.fromEntries(count(10_000).map((i) => [`<b>${i}</b> 層`, i]))
  const records = take({ step: count(5), values: count(5).map(() => mapping) })
  it('draws the first lines and counts the rest', () => {
    expect(lines(records)).toHaveLength(MAX_LINES)
    expect(records.n_names_left_out).toBe(10_000 - MAX_LINES)
    expect(lines(records)[0]!.label).toBe('<b>0</b> 層')
  })
  it('has a bar for each', () => {
    expect(layersOf([seriesOf(records)], STANDARD)[0]!.now.names).toHaveLength(10_000)
  })
})

describe('limits', () => {
  const records = take({ step: count(10), y: count(10) })
  it('are what is in view, and a closer look is smoothed less', () => {
    expect(model(records, { zoom: [2, 4], yzoom: [-5, 5] })).toMatchObject({ xs: [2, 4], ys: [-5, 5] })
    const lag = (seen: Span | null) => 5 - linesOf([seriesOf(records)], { ...STANDARD, smooth: 0.99 }, seen)[0]!.y[seen ? 1 : 5]!
    expect(lag([5, 6])).toBeLessThan(lag(null) / 2)
  })
  it('below zero are none on a logarithmic axis', () => {
    expect(model(records, { xlog: true, zoom: [-1, 5] })).toMatchObject({ xs: [0.5, 5] })
  })
})
