import { describe, expect, it } from 'vitest'
import { joined, keptIn, MAX_DRAWN, N_COLUMNS, picked } from '../src/views/thin'

const N = 100_000
const steps = Float64Array.from({ length: N }, (_, i) => i)
const waves = () => Float64Array.from(steps, (i) => Math.sin(i / 100) + Math.cos(i))
const all = (x: Float64Array, y: Float64Array, log = false) => keptIn(x, y, 0, y.length, [x[0]!, x[x.length - 1]!], log)!

describe('of a line with more points than pixels', () => {
  it('as many are drawn as can be seen, in their order, each once', () => {
    const kept = all(steps, waves())
    expect(kept.length).toBeLessThanOrEqual(MAX_DRAWN + 2)
    expect(kept.every((place, i) => i === 0 || place > kept[i - 1]!)).toBe(true)
  })
  it('each column keeps its extremes, so a spike of one point stays', () => {
    const y = waves()
    y[54_321] = 99
    y[54_400] = -99
    const kept = all(steps, y)
    expect(kept).toEqual(expect.arrayContaining([54_321, 54_400]))
    const width = (N - 1) / N_COLUMNS
    for (const c of [0, 1, 777, N_COLUMNS - 1]) {
      const [from, end] = [Math.ceil(c * width), Math.min(N, Math.ceil((c + 1) * width))]
      const [part, drawn] = [y.slice(from, end), kept.filter((i) => i >= from && i < end).map((i) => y[i]!)]
      expect([Math.min(...drawn), Math.max(...drawn)]).toEqual([Math.min(...part), Math.max(...part)])
    }
  })
  it('the first and the last are kept', () => {
    const kept = keptIn(steps, new Float64Array(N).fill(3), 100, 90_001, [100, 90_000], false)!
    expect([kept[0], kept[kept.length - 1]]).toEqual([100, 90_000])
  })
  it('a gap of one point stays a gap, between what stands on its sides', () => {
    const y = waves()
    y[500] = NaN
    const kept = all(steps, y)
    const gap = kept.findIndex((i) => Number.isNaN(y[i]!))
    expect(kept[gap]).toBe(500)
    expect(kept[gap - 1]!).toBeLessThan(500)
    expect(kept[gap + 1]!).toBeGreaterThan(500)
  })
  it('long gaps, and columns of nothing else, are drawn as a few', () => {
    const y = new Float64Array(N).fill(NaN)
    y[70_000] = 1
    const kept = all(steps, y)
    expect(kept).toContain(70_000)
    expect(kept.length).toBeLessThanOrEqual(N_COLUMNS + 4)
  })
  it('infinities are kept, and hide nothing', () => {
    const y = waves()
    y[10] = Infinity
    y[11] = -Infinity
    y[12] = 50
    expect(all(steps, y)).toEqual(expect.arrayContaining([10, 11, 12]))
  })
  it('what stands far apart is kept though nearly all stand close together', () => {
    const x = Float64Array.from({ length: N }, (_, i) => (i < N - 50 ? i / N : 1 + i - (N - 50)))
    const kept = all(x, waves())
    expect(kept.slice(-50)).toEqual(Array.from({ length: 50 }, (_, i) => N - 50 + i))
  })
  it('columns of a logarithmic axis are as wide as they are drawn', () => {
    const x = Float64Array.from(steps, (i) => i + 1)
    expect(all(x, waves(), true).slice(0, 20)).toEqual(Array.from({ length: 20 }, (_, i) => i))
  })
  it('many at one place are two', () => {
    expect(all(new Float64Array(N), waves()).length).toBeLessThanOrEqual(4)
  })
})

it('few points are all drawn', () => {
  expect(keptIn(steps, waves(), 5, 5 + MAX_DRAWN, [5, 4_005], false)).toBeNull()
  expect(picked(Float64Array.of(1, 2), null)).toEqual(Float64Array.of(1, 2))
})

it('two choices are joined', () => {
  expect(joined([1, 4, 9], [2, 4])).toEqual([1, 2, 4, 9])
})
