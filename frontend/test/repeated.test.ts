import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { REST_MS, repeated } from '../src/data/repeated'

const tab = { hidden: false, listeners: new Set<() => void>(), addEventListener: (_: string, wake: () => void) => tab.listeners.add(wake), removeEventListener: (_: string, wake: () => void) => tab.listeners.delete(wake) }

beforeEach(() => {
  vi.useFakeTimers()
  vi.stubGlobal('document', tab)
  vi.stubGlobal('window', globalThis)
  tab.hidden = false
  tab.listeners.clear()
})
afterEach(() => void vi.useRealTimers())

test('news are worked on at once, and what comes meanwhile is one more turn after a rest', async () => {
  let n = 0
  const work = repeated(async () => void n++)
  work.tell()
  expect(n).toBe(1)
  for (let i = 0; i < 5; i++) work.tell()
  await vi.advanceTimersByTimeAsync(REST_MS - 1)
  expect(n).toBe(1)
  await vi.advanceTimersByTimeAsync(1)
  expect(n).toBe(2)
  await vi.advanceTimersByTimeAsync(10 * REST_MS)
  expect(n).toBe(2)
  work.tell()
  expect(n).toBe(3)
})

test('one turn at a time, and a rest after long work is longer', async () => {
  let [n, busy, most] = [0, 0, 0]
  const work = repeated(async () => {
    n++
    most = Math.max(most, ++busy)
    await new Promise((done) => setTimeout(done, 1_000))
    busy--
  })
  work.tell()
  work.tell()
  await vi.advanceTimersByTimeAsync(2_900)
  expect([n, most]).toEqual([1, 1])
  await vi.advanceTimersByTimeAsync(200)
  expect([n, most]).toEqual([2, 1])
})

test('a hidden tab waits until it is seen', async () => {
  let n = 0
  const work = repeated(async () => void n++)
  tab.hidden = true
  work.tell()
  await vi.advanceTimersByTimeAsync(10 * REST_MS)
  expect(n).toBe(0)
  tab.hidden = false
  for (const wake of tab.listeners) wake()
  expect(n).toBe(1)
})

test('after its end nothing is done and nothing is left', async () => {
  let n = 0
  const work = repeated(async () => void n++)
  work.tell()
  work.tell()
  work.stop()
  await vi.advanceTimersByTimeAsync(10 * REST_MS)
  expect([n, tab.listeners.size, vi.getTimerCount()]).toEqual([1, 0, 0])
})
