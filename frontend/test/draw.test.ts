import { describe, expect, it } from 'vitest'
import { drawLines, path, type Line, type Pen } from '../src/views/draw'
import { smooth } from '../src/views/smooth'
import { keptIn, picked } from '../src/views/thin'

const same = { x: (v: number) => v, y: (v: number) => v }
const pathOf = (xs: number[], ys: number[]) => path(Float64Array.from(xs), Float64Array.from(ys), 0, xs.length, same)

describe('the places of a line', () => {
  it('are all of them where no two are in one column of pixels', () => {
    expect(pathOf([0, 1, 2.5, 3], [5, 6, 7, 5])).toEqual([0, 5, 1, 6, 2.5, 7, 3, 5])
  })
  it('are the first, the extremes and the last of a column, in their order', () => {
    expect(pathOf([0.1, 0.2, 0.3, 0.4, 0.5, 1], [3, 9, 4, 1, 2, 0])).toEqual([0.1, 3, 0.2, 9, 0.4, 1, 0.5, 2, 1, 0])
    expect(pathOf([0.1, 0.2, 0.3], [1, 1, 1])).toEqual([0.1, 1, 0.3, 1])
  })
  it('keep every gap and every infinity', () => {
    expect(pathOf([0.1, 0.2, 0.3, 0.4], [1, NaN, Infinity, 2])).toEqual([0.1, 1, 0.2, NaN, 0.3, Infinity, 0.4, 2])
  })
  it('are a bounded number for each pixel, however many points there are', () => {
    const n = 100_000
    const [xs, ys] = [Array.from({ length: n }, (_, i) => (400 * i) / n), Array.from({ length: n }, (_, i) => Math.sin(i) + (i === 777 ? 50 : 0))]
    const found = pathOf(xs, ys)
    expect(found.length).toBeLessThanOrEqual(2 * 4 * 400)
    expect(Math.max(...found.filter((_, i) => i % 2))).toBe(ys[777])
  })
})

/** Where something is seen: strokes of at least a pixel, by their ends. */
function seenIn(line: Line, span: [number, number]): { x: number; y: number }[] {
  const ends: { x: number; y: number }[] = []
  const pen: Pen = {
    line: (points) => {
      for (let i = 2; i < points.length; i += 2) {
        const [a, b, c, d] = points.slice(i - 2, i + 2) as [number, number, number, number]
        if (Math.hypot(c - a, d - b) >= 1) ends.push({ x: a, y: b }, { x: c, y: d }, { x: (a + c) / 2, y: (b + d) / 2 })
      }
    },
    area: () => undefined,
    mark: () => undefined,
    text: () => undefined,
  }
  drawLines(pen, [line], { xs: span, ys: [0, 100], xlog: false, ylog: false, left: 0, top: 0, width: 400, height: 100, ratio: 1 }, null)
  return ends
}

describe('a finite value that stands alone is seen', () => {
  const kinds = ['plain', 'dashed', 'smoothed', 'zoomed', 'long'] as const
  for (let seed = 1; seed <= 12; seed++)
    it.each(kinds)(`${seed}: %s`, (kind) => {
      let state = seed * 7919
      const random = () => (state = (state * 48271) % 2147483647) / 2147483647
      const n = kind === 'long' ? 20_000 : 60
      const odd = [NaN, Infinity, -Infinity]
      const x = Float64Array.from({ length: n }, (_, i) => (400 * i) / n)
      const y = Float64Array.from({ length: n }, () => (random() < (kind === 'long' ? 0.995 : 0.6) ? odd[Math.floor(random() * 3)]! : 5 + 90 * random()))
      const span: [number, number] = kind === 'zoomed' ? [100, 300] : [0, 400]
      const places = kind === 'long' ? keptIn(x, y, 0, n, span, false) : null
      const line: Line = { id: 'a', label: 'a', style: { color: 'red', dash: kind === 'dashed' ? [4, 2] : [] }, x: picked(x, places), y: picked(kind === 'smoothed' ? smooth(x, y, 0.9, 400) : y, places), ...(kind === 'smoothed' && { raw: y }) }
      const ends = seenIn(line, span)
      for (let i = 0; i < n; i++) {
        if (!Number.isFinite(y[i]!) || x[i]! < span[0] || x[i]! >= span[1]) continue
        const px = ((x[i]! - span[0]) / (span[1] - span[0])) * 400
        expect(ends.some((end) => Math.abs(end.x - px) <= 2 && (kind === 'long' || Math.abs(end.y - (100 - y[i]!)) < 1e-6)), `x=${x[i]} y=${y[i]}`).toBe(true)
      }
    })
})

it('a −∞, a +∞ and a NaN side by side have a mark each', () => {
  const marks: string[] = []
  const pen: Pen = { line: () => undefined, area: () => undefined, text: () => undefined, mark: (x, _, kind) => void marks.push(`${kind} ${x}`) }
  const values = [Infinity, -Infinity, NaN, -Infinity, Infinity]
  const line: Line = { id: 'a', label: 'a', style: { color: 'red', dash: [] }, x: Float64Array.from([50, 51, 52, 53, 80]), y: Float64Array.from(values) }
  drawLines(pen, [line], { xs: [0, 400], ys: [0, 100], xlog: false, ylog: false, left: 0, top: 0, width: 400, height: 100, ratio: 1 }, null)
  expect(marks).toEqual(['up 50', 'down 51', 'nan 52', 'up 80'])
})
