import { describe, expect, it } from 'vitest'
import { path } from '../src/views/draw'

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
