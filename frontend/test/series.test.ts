import { expect, test, vi } from 'vitest'
import { reuseEqual } from '../src/data/reuse'
import { fetchInParts } from '../src/data/parts'
import { extended } from '../src/data/tail'
import type { Run, Scalars } from '../src/data/types'

const series = (x: number[], n = x.length, thinned = false): Scalars => {
  const column = Float64Array.from(x)
  const parts = [{ start: 0, end: x.length, alpha: 1, pass: 0 }]
  return { n, thinned, x: column, y: column.map((v) => v * 2), wall: column, step: column, parts, restarts: [], tracks: [], cursor: 'then', continued: false, n_pending: 0 }
}

const tail = (x: number[]): Scalars => ({ ...series(x), cursor: 'now', continued: true })

test('a tail is joined on, where the newest part goes on', () => {
  const old = { ...series([1, 2, 3, 1, 2], 30, true), parts: [{ start: 0, end: 3, alpha: 0.31, pass: 0 }, { start: 3, end: 5, alpha: 1, pass: 1 }] }
  const { x, y, n, thinned, parts, cursor } = extended(old, tail([4, 5]))
  expect([...x]).toEqual([1, 2, 3, 1, 2, 4, 5])
  expect([...y]).toEqual([2, 4, 6, 2, 4, 8, 10])
  expect([n, thinned, cursor]).toEqual([32, true, 'now'])
  expect(parts.map(({ start, end }) => [start, end])).toEqual([[0, 3], [3, 7]])
})

test('what is still to be read is told by the last reply', () => {
  expect(extended({ ...series([1]), n_pending: 5 }, { ...tail([]), n_pending: 3 }).n_pending).toBe(3)
  expect(extended({ ...series([1]), n_pending: 5 }, { ...tail([2]), n_pending: 0 }).n_pending).toBe(0)
})

test('a reply that has all points takes the place of the series', () => {
  const whole = { ...tail([1, 2]), continued: false }
  expect(extended(series([1, 2, 3]), whole)).toBe(whole)
})

test('means are those between neighbours, also across the seam', () => {
  const old = series([1, 3], 30, true)
  const joined = extended({ ...old, mean: Float64Array.of(NaN, 7) }, { ...tail([5, 6]), mean: Float64Array.of(8, NaN) })
  expect([...joined.mean!]).toEqual([NaN, 7, 8, NaN])
  expect([...extended({ ...old, mean: Float64Array.of(NaN, 7) }, tail([5, 6])).mean!]).toEqual([NaN, 7, NaN, NaN])
})

test('a tail with nothing new changes nothing', () => {
  const old = series([1, 2])
  expect(extended(old, tail([]))).toBe(old)
})

test('what did not change keeps its object, and its config', () => {
  const run = (last_step: number) => ({ key: 'a', config: { lr: 1 }, last_step }) as unknown as Run
  const [old] = [run(1)]
  expect(reuseEqual([old], [run(1)])[0]).toBe(old)
  const [changed] = reuseEqual([old], [run(2)])
  expect(changed).toMatchObject({ last_step: 2 })
  expect(changed!.config).toBe(old.config)
  expect(reuseEqual(null, [old])).toEqual([old])
})

test('a queue is emptied a few at a time, though it grows', async () => {
  vi.stubGlobal('window', globalThis)
  const taken: number[] = []
  let [busy, most] = [0, 0]
  const fetchAll = fetchInParts<number, number>(
    2,
    async (item) => {
      most = Math.max(most, ++busy)
      await Promise.resolve()
      if (item === 3) await Promise.race([fetchAll([4]), Promise.resolve()])
      busy--
      return item * 10
    },
    (answers) => taken.push(...answers),
  )
  await fetchAll([1, 2, 3])
  await vi.waitFor(() => expect(taken.sort()).toEqual([10, 20, 30, 40]))
  expect(most).toBe(2)
  vi.unstubAllGlobals()
})
