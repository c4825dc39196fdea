import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { ApiError, get, getBytes, post, postForMessagePack, postToRead, unanswered, wake } from '../src/data/api'

function cutOff(): Response {
  const begins = new TextEncoder().encode('{"runs": [')
  const body = new ReadableStream({
    start: (reply) => reply.enqueue(begins),
    pull: (reply) => reply.error(new TypeError('network error')),
  })
  return new Response(body, { status: 200 })
}

beforeEach(() => {
  vi.stubGlobal('sessionStorage', { getItem: () => null })
  vi.stubGlobal('location', { origin: 'http://127.0.0.1:4000', pathname: '/' })
  vi.stubGlobal('fetch', () => Promise.resolve(cutOff()))
})

afterEach(() => void vi.unstubAllGlobals())

it('says that the server does not answer if it dies in the middle of a reply', async () => {
  const error: unknown = await post('runs', {}).catch((error: unknown) => error)
  expect(error).toBeInstanceOf(ApiError)
  expect(error).toMatchObject({ status: 0, type: 'Unreachable' })
})

/** Replies of a server that is away at first. */
function replies(...several: (() => Response | Promise<Response>)[]): { n: number } {
  const seen = { n: 0 }
  vi.stubGlobal('fetch', (_: URL, { signal }: RequestInit) => {
    const reply = several[Math.min(seen.n++, several.length - 1)]!
    return new Promise<Response>((done, fail) => {
      signal?.addEventListener('abort', () => fail(new DOMException('aborted', 'AbortError')))
      Promise.resolve().then(reply).then(done, fail)
    })
  })
  return seen
}

const good = () => new Response('{"ok": 1}', { status: 200 })
const refused = () => Promise.reject(new TypeError('refused'))
const hangs = () => new Promise<Response>(() => {})
const fromProxy = () => new Response('<html>Bad gateway', { status: 502 })
const ours = () => new Response('{"error": {"type": "RunLostError", "message": "gone"}}', { status: 504 })

it.each([
  ['get', () => get('runs')],
  ['getBytes', () => getBytes('runs').then((blob) => blob.text()).then(JSON.parse)],
  ['postToRead', () => postToRead('columns', {})],
])('%s asks again until a server answers', async (_, call) => {
  vi.useFakeTimers()
  const seen = replies(refused, fromProxy, cutOff, hangs, refused, good)
  const reply = call()
  await vi.advanceTimersByTimeAsync(1)
  expect(unanswered.value).toBe(1)
  await vi.advanceTimersByTimeAsync(90_000)
  expect(await reply).toEqual({ ok: 1 })
  expect([seen.n, unanswered.value]).toEqual([6, 0])
  vi.useRealTimers()
})

it('asks at once when the server is back', async () => {
  vi.useFakeTimers()
  const seen = replies(refused, refused, refused, refused, good)
  const reply = get('runs')
  await vi.advanceTimersByTimeAsync(4_000)
  const n = seen.n
  wake()
  await vi.advanceTimersByTimeAsync(1)
  expect(seen.n).toBe(n + 1)
  expect(await reply).toEqual({ ok: 1 })
  vi.useRealTimers()
})

it('asks no more when the reader has gone elsewhere', async () => {
  vi.useFakeTimers()
  const seen = replies(refused)
  const gone = new AbortController()
  const reply = postForMessagePack('scalars', {}, gone.signal).catch((error: unknown) => error)
  await vi.advanceTimersByTimeAsync(600)
  gone.abort()
  await vi.advanceTimersByTimeAsync(60_000)
  expect(await reply).toMatchObject({ status: 0 })
  expect([seen.n, unanswered.value]).toEqual([2, 0])
  vi.useRealTimers()
})

it.each([
  ['a command', () => post('runs/a/commands', {}), refused],
  ['what the server itself says', () => get('runs/a/details'), ours],
])('%s is asked once', async (_, call, reply) => {
  const seen = replies(reply, good)
  await expect(call()).rejects.toBeInstanceOf(ApiError)
  expect([seen.n, unanswered.value]).toEqual([1, 0])
})
