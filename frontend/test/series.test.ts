import { expect, test } from 'vitest'
import { reuseEqual } from '../src/data/reuse'
import { fetchInParts } from '../src/data/parts'
import { extended } from '../src/data/tail'
import type { Run, Scalars } from '../src/data/types'

const series = (x: number[], n = x.length, thinned = false): Scalars => {
  const column = Float64Array.from(x)
  return { n, thinned, x: column, y: column.map((v) => v * 2), wall: column, step: column }
}

test('a tail is joined on, and the overlap counts once', () => {
  const { x, y, n, thinned } = extended(series([1, 2, 3], 30, true), series([3, 4, 5]))
  expect([...x]).toEqual([1, 2, 3, 4, 5])
  expect([...y]).toEqual([2, 4, 6, 8, 10])
  expect([n, thinned]).toEqual([32, true])
})

test('a tail with nothing new changes nothing', () => {
  const old = series([1, 2])
  expect(extended(old, series([2]))).toBe(old)
  expect(extended(old, series([]))).toBe(old)
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
  const queue = [1, 2, 3]
  const taken: number[] = []
  let [busy, most] = [0, 0]
  const fetch = async (item: number) => {
    most = Math.max(most, ++busy)
    await Promise.resolve()
    if (item === 3) queue.push(4)
    busy--
    return item * 10
  }
  await fetchInParts(queue, 2, fetch, (answers) => taken.push(...answers))
  expect(taken.sort()).toEqual([10, 20, 30, 40])
  expect(most).toBe(2)
})
