import { describe, expect, test } from 'vitest'
import { heightOf, layoutOf, pointedAt, columnOf, type HistogramOptions } from '../src/views/histogramLayout'
import { finerBins, placeOf, spaced, stepPlaces, stepsWithin, binFacts, isSqueezed, totalAt, valueAt, valueTicks, type HistogramSeries } from '../src/views/histograms'

const series: HistogramSeries = {
  steps: [0, 1, 10, 100],
  walls: [0, 1, 2, 3],
  edges: [-10, -1, 0, 1, 10],
  counts: [[1, 2, 3, 4], [0, 0, 5, 5], [9, 1, 0, 0], [2, 2, 2, 20]],
  n_nan: [0, 3, 0, 0],
  n_posinf: [0, 1, 0, 0],
  n_neginf: [0, 0, 0, 2],
  percentiles: [[-5, -1, 0, 1, 5], [-5, -1, 0, 1, 5], [-5, -1, 0, 1, 5], [NaN, NaN, NaN, NaN, NaN]],
}
const options: HistogramOptions = { kind: 'offset', symlog: false, logCounts: false, along: 'step', values: null, steps: null }

describe('bins of unequal widths are equally wide on the picture', () => {
  test('values and places belong to each other', () => {
    expect(placeOf(series.edges, -10)).toBe(0)
    expect(placeOf(series.edges, 0.5)).toBe(2.5)
    expect(placeOf(series.edges, 10)).toBe(4)
    for (const value of [-9.5, -1, 0, 0.25, 7]) expect(valueAt(series.edges, placeOf(series.edges, value))).toBeCloseTo(value, 12)
  })

  test('ticks of a symmetric log scale are powers of ten, and zero', () => {
    const labels = valueTicks(series.edges, [0, 4], true, 12).map(({ label }) => label)
    expect(labels).toContain('0')
    expect(labels).toContain('1')
    expect(labels).toContain('−10')
    const places = valueTicks(series.edges, [0, 4], true, 12).map(({ place }) => place)
    expect(places).toEqual([...places].sort((a, b) => a - b))
  })
})

describe('steps', () => {
  test('stand at their true distances, or evenly', () => {
    expect(stepPlaces(series.steps, false)).toEqual([0, 0.01, 0.1, 1])
    expect(stepPlaces(series.steps, true)).toEqual([0, 1 / 3, 2 / 3, 1])
    expect(stepPlaces([5, 3, 6], false)).toEqual([0, 0, 1]) // times of a clock that was set back
    expect(stepPlaces([7], false)).toEqual([1])
    expect(stepPlaces([7, 7], false)).toEqual([0, 1])
  })

  test('within a span', () => {
    expect(stepsWithin(series.steps, null)).toEqual([0, 4])
    expect(stepsWithin(series.steps, [1, 10])).toEqual([1, 3])
    expect(stepsWithin(series.steps, [200, 300])).toEqual([0, 0])
  })

  test('some of them with room between; the last is always there', () => {
    expect(spaced([0, 1, 2, 10, 11], 3)).toEqual([2, 4])
    expect(spaced([], 3)).toEqual([])
  })
})

describe('the facts of a bin', () => {
  test('counts add up, with what no bin can hold', () => {
    expect(totalAt(series, 1)).toBe(14)
    expect(binFacts(series, 1, 2)).toEqual(['5 of 14 values (35.7 %)', 'in [0, 1)', '3 NaN', '1 +Inf'])
    expect(binFacts(series, 0, 3)[1]).toBe('in [1, 10]')
  })
})

describe('layout', () => {
  test.each(['offset', 'overlay', 'heat', 'bands'] as const)('%s: what is pointed at is where it was drawn', (kind) => {
    for (const [along, logCounts] of [['step', false], ['even', true], ['relative', false], ['wall', true]] as const) {
      const layout = layoutOf(series, { ...options, kind, along, logCounts }, 800, 500)
      for (const i of layout.drawn) {
        const bin = 3
        const across = kind === 'offset' || kind === 'overlay'
        const place = layout.value(bin + 0.5)
        const [left, right] = across ? [0, 0] : columnOf(layout, i)
        const y = kind === 'overlay' ? layout.box.top + layout.box.height - heightOf(layout, series.counts[i]![bin]!) : layout.step(i)
        const found = across ? pointedAt(series, layout, place, y) : pointedAt(series, layout, (left + right) / 2, place)
        // A ridge in front may hide the foot of one behind it.
        if (kind === 'offset' && i < layout.drawn.at(-1)!) expect(found!.i).toBeGreaterThanOrEqual(i)
        else expect(found).toEqual({ i, bin })
      }
      expect(pointedAt(series, layout, -5, 50)).toBeNull()
    }
  })

  test('a zoom leaves what is in it', () => {
    const layout = layoutOf(series, { ...options, values: [-1, 1], steps: [1, 10] }, 800, 500)
    expect(layout.bins).toEqual([1, 3])
    expect(layout.range).toEqual([1, 3])
    expect(layout.value(1)).toBeCloseTo(layout.box.left)
    expect(layout.value(3)).toBeCloseTo(layout.box.left + layout.box.width)
  })

  test('the logarithm of counts keeps their order, and makes small ones be seen', () => {
    const [plain, log] = [false, true].map((logCounts) => layoutOf(series, { ...options, logCounts }, 800, 500))
    for (const layout of [plain!, log!]) expect([layout.share(0), layout.share(20)]).toEqual([0, 1])
    expect(log!.share(1)).toBeGreaterThan(4 * plain!.share(1))
    expect(log!.share(2)).toBeGreaterThan(log!.share(1))
  })

  test('a narrow ridge draws fewer steps, the last among them', () => {
    const steps = Array.from({ length: 200 }, (_, i) => i)
    const many = { ...series, steps, counts: steps.map(() => [1, 2, 3, 4]) }
    const [wide, narrow] = [1_200, 360].map((width) => layoutOf(many, options, width, 500).drawn)
    expect(narrow!.length).toBeLessThan(45)
    expect(wide!.length).toBeGreaterThan(2 * narrow!.length)
    expect([wide!.at(-1), narrow!.at(-1)]).toEqual([199, 199])
  })

  test('nothing in sight is no error', () => {
    const layout = layoutOf(series, { ...options, steps: [200, 300] }, 800, 500)
    expect(layout.drawn).toEqual([])
    expect(pointedAt(series, layout, 100, 100)).toBeNull()
  })
})

test('a closer look has finer bins, up to a limit', () => {
  expect(finerBins(64, [-10, 10], [-10, 10])).toBe(64)
  expect(finerBins(64, [-10, 10], [0, 5])).toBe(256)
  expect(finerBins(64, [-10, 10], [0, 0.001])).toBe(1024)
})

test('outliers squeeze the others where almost all are in two bins', () => {
  const edges = Array.from({ length: 11 }, (_, i) => i)
  const row = (n: number[]) => [...n, ...Array.from({ length: 10 - n.length }, () => 0)]
  expect(isSqueezed({ counts: [row([600, 399, 0, 0, 0, 0, 0, 0, 0, 1])], edges })).toBe(true)
  expect(isSqueezed({ counts: [row([600, 300, 99, 0, 0, 0, 0, 0, 0, 1])], edges })).toBe(false)
  expect(isSqueezed({ counts: [row([5]), row([7])], edges })).toBe(false)
  expect(isSqueezed({ counts: [], edges })).toBe(false)
})
