import { computed, signal } from '@preact/signals'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { RunResource } from '../src/data/runResource'
import type { Run } from '../src/data/types'

const page = vi.hoisted(() => ({ shown: null as unknown }))
vi.mock('../src/data/runs', () => {
  const shown = signal<Run[]>([])
  page.shown = shown
  return { shown, byKey: computed(() => new Map(shown.value.map((run) => [run.key, run]))), socket: { returns: signal(0), watch: () => {} } }
})

const draw = (...runs: [key: string, version: string][]): void => {
  ;(page.shown as { value: Partial<Run>[] }).value = runs.map(([key, version]) => ({ key, version }))
}

const REST_MS = 2_000
let asked: string[] = []
let path = ''
let reply: (run: string) => Response | Promise<Response>

beforeEach(() => {
  vi.useFakeTimers()
  vi.stubGlobal('document', { hidden: false, addEventListener: () => {}, removeEventListener: () => {} })
  vi.stubGlobal('window', globalThis)
  vi.stubGlobal('sessionStorage', { getItem: () => null })
  vi.stubGlobal('location', { origin: 'http://127.0.0.1:4000', pathname: '/' })
  vi.stubGlobal('fetch', async (url: URL) => {
    const [run, last] = url.pathname.split('/').slice(-2) as [string, string]
    if (last !== path) return new Promise<Response>(() => {}) // of an earlier test
    asked.push(run)
    return reply(run)
  })
  asked = []
  reply = (run) => new Response(JSON.stringify({ run, n: asked.length }))
  draw()
})
afterEach(() => {
  draw()
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

let n_made = 0
const made = () => {
  path = `tags${n_made++}`
  const tags = new RunResource<{ run: string; n: number }, { run: string; n: number; name: { of: string } }>({
    path: `/${path}`,
    news: ({ version }) => (version === 'none' ? null : version),
    keep: (now, before) => ({ ...now, name: before?.name ?? { of: now.run } }),
    n_at_once: 2,
    rest_ms: REST_MS,
    drawn: { only: ({ key }) => key !== 'foreign', rest_ms: REST_MS },
  })
  tags.followDrawn()
  return tags
}
const later = (duration_ms = 0) => vi.advanceTimersByTimeAsync(duration_ms)
const failure = (message: string) => new Response(JSON.stringify({ error: { type: 'StorageError', message } }), { status: 500 })

it('is fetched once for each run that is drawn, and again when there is news of it', async () => {
  const tags = made()
  draw(['a', '1'], ['b', '1'], ['foreign', '1'], ['empty', 'none'])
  expect(tags.awaits({ key: 'a', version: '1' } as Run)).toBe(true)
  expect(tags.awaits({ key: 'empty', version: 'none' } as Run)).toBe(false)
  await later()
  expect(asked).toEqual(['a', 'b'])
  expect(tags.awaits({ key: 'a', version: '1' } as Run)).toBe(false)
  draw(['a', '1'], ['b', '2'], ['c', '1'])
  await later()
  expect(asked).toContain('c')
  await later(2 * REST_MS)
  expect(asked.slice(2).sort()).toEqual(['b', 'c'])
  await later(10 * REST_MS)
  expect(asked.length).toBe(4)
})

it('keeps what it had while a run cannot be read, and says why until it can', async () => {
  const tags = made()
  draw(['a', '1'])
  await later()
  reply = () => failure('The file is damaged')
  draw(['a', '2'])
  await later(REST_MS)
  expect(tags.problems.value.get('a')).toBe('The file is damaged')
  expect(tags.of('a')?.n).toBe(1)
  reply = (run) => new Response(JSON.stringify({ run, n: 7 }))
  draw(['a', '3'])
  await later(REST_MS)
  expect(tags.problems.value.size).toBe(0)
  expect(tags.of('a')?.n).toBe(7)
})

it('waits for a server that is away, and asks for other runs meanwhile', async () => {
  const tags = made()
  reply = (run) => (run === 'a' ? Promise.reject(new TypeError('refused')) : new Response(JSON.stringify({ run, n: 1 })))
  draw(['a', '1'], ['b', '1'])
  await later(REST_MS)
  expect([tags.of('a'), tags.of('b')?.n, tags.problems.value.size]).toEqual([undefined, 1, 0])
  reply = (run) => new Response(JSON.stringify({ run, n: 2 }))
  await later(60_000)
  expect(tags.of('a')?.n).toBe(2)
})

it('asks for runs that come later while one hangs', async () => {
  const tags = made()
  reply = (run) => (run === 'a' ? new Promise<Response>(() => {}) : new Response(JSON.stringify({ run, n: asked.length })))
  draw(['a', '1'], ['b', '1'])
  await later(500)
  expect(tags.of('b')?.n).toBe(2)
  draw(['a', '2'], ['b', '2'], ['c', '1'])
  await later(10_000)
  expect([asked, tags.of('b')?.n, tags.of('c')?.run]).toEqual([['a', 'b', 'c', 'b'], 4, 'c'])
})

it('changes what depends on a part only with the part', async () => {
  const tags = made()
  const names = tags.each(({ name }) => name)
  draw(['a', '1'])
  await later()
  const before = names.value
  expect(before.get('a')).toEqual({ of: 'a' })
  draw(['a', '2'])
  await later(REST_MS)
  expect(tags.of('a')?.n).toBe(2)
  expect(names.value).toBe(before)
  draw(['a', '2'], ['b', '1'])
  await later(REST_MS)
  expect([...names.value.keys()]).toEqual(['a', 'b'])
})
