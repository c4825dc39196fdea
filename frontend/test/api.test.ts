import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { ApiError, get, getBytes, post } from '../src/data/api'

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

it.each([
  ['get', () => get('runs')],
  ['getBytes', () => getBytes('runs')],
  ['post', () => post('runs', {})],
])('%s says that the server does not answer if it dies in the middle of a reply', async (_, call) => {
  const error: unknown = await call().catch((error: unknown) => error)
  expect(error).toBeInstanceOf(ApiError)
  expect(error).toMatchObject({ status: 0, type: 'Unreachable' })
})
