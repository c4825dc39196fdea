// The HTTP client: every answer is typed, every failure is an `ApiError` with the server's own words.
//
// What only reads is asked again until the server answers, so a server that was gone for a while leaves no trace in
// what is shown: `unanswered` says meanwhile that the page waits for it. What changes something is asked once.

import { decode } from '@msgpack/msgpack'
import { signal } from '@preact/signals'
import { file, replyTo, replyToPost } from './file'
import { currentToken, locked } from './session'

export class ApiError extends Error {
  /** `status` is 0 where the server could not be reached. */
  constructor(
    readonly status: number,
    readonly type: string,
    message: string,
    readonly position: number | null = null,
  ) {
    super(message)
  }
}

/** How many requests wait for a server that does not answer. */
export const unanswered = signal(0)

const AGAIN_MS = [500, 1_000, 2_000, 5_000]
/** A server that has not begun to answer by then hangs, or the network lost the request. */
const BEGUN_MS = 60_000
/** What proxies answer in place of a server that is gone. */
const FROM_PROXIES = [502, 503, 504]

const sleeping = new Set<() => void>()

/** The server is there again: what waits for it asks at once. */
export function wake(): void {
  for (const one of sleeping) one()
}

type Query = Record<string, string | number | undefined>

export function apiUrl(path: string, query: Query = {}): URL {
  const url = new URL(`api/v1/${path}`, location.origin + location.pathname)
  for (const [key, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(key, String(value))
  return url
}

export function runPath(key: string, rest = ''): string {
  return `runs/${encodeURIComponent(key)}${rest}`
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  if (file) return kept(replyTo(path, query)) as T
  return untilAnswered(() => ask(apiUrl(path, query), { signal }, (answer) => answer.json() as Promise<T>), signal)
}

export async function getBytes(path: string, query: Query = {}): Promise<Blob> {
  if (file) return kept(replyTo(path, query)) as Blob
  return untilAnswered(() => ask(apiUrl(path, query), {}, (answer) => answer.blob()))
}

export async function postForBytes(path: string, body: unknown): Promise<Blob> {
  return ask(apiUrl(path), posted(body), (answer) => answer.blob())
}

/** Post what only reads, though a URL has no room for the question. */
export async function postToRead<T>(path: string, body: unknown): Promise<T> {
  return untilAnswered(() => post<T>(path, body))
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  if (file) return kept(replyToPost(path, body as object)) as T
  return ask(apiUrl(path), posted(body), (answer) => answer.json() as Promise<T>)
}

export async function postForMessagePack(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
  if (file) return kept(replyToPost(path, body as object))
  const bytes = await untilAnswered(() => ask(apiUrl(path), { ...posted(body), signal }, (answer) => answer.arrayBuffer()), signal)
  return decode(new Uint8Array(bytes))
}

/** What the file has, in place of a server's reply. */
function kept(reply: unknown): unknown {
  if (reply === undefined) throw new ApiError(404, 'NotInFile', 'This file does not have it: open the page of the server')
  return reply
}

function posted(body: unknown): RequestInit {
  return { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } }
}

/** Ask again as long as no server answers, at longer and longer intervals. */
export async function untilAnswered<T>(request: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  let n = 0
  try {
    for (;;) {
      try {
        return await request()
      } catch (error) {
        if (!isAway(error) || signal?.aborted) throw error
        if (!n++) unanswered.value++
        await rest(AGAIN_MS[Math.min(n, AGAIN_MS.length) - 1]!, signal)
        if (signal?.aborted) throw error
      }
    }
  } finally {
    if (n) unanswered.value--
  }
}

const isAway = (error: unknown): boolean =>
  error instanceof ApiError && (error.status === 0 || (error.type === 'Error' && FROM_PROXIES.includes(error.status)))

/** Wait for a while, for the server to return, or for the reader to go elsewhere. */
function rest(duration_ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer)
      sleeping.delete(end)
      signal?.removeEventListener('abort', end)
      done()
    }
    const timer = setTimeout(end, duration_ms)
    sleeping.add(end)
    signal?.addEventListener('abort', end)
  })
}

/** What `read` makes of the reply. A reply that breaks off counts as a server that does not answer. */
async function ask<T>(url: URL, init: RequestInit, read: (answer: Response) => Promise<T>): Promise<T> {
  if (locked.peek()) throw new ApiError(401, 'UnauthorizedError', 'This link is no longer valid')
  const token = currentToken()
  const headers = { ...init.headers, ...(token && { Authorization: `Bearer ${token}` }) }
  let answer: Response
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), BEGUN_MS)
  const signal = init.signal ? AbortSignal.any([init.signal, late.signal]) : late.signal
  try {
    answer = await fetch(url, { ...init, signal, headers, credentials: 'same-origin', referrerPolicy: 'no-referrer' })
    clearTimeout(timer)
    if (answer.ok) return await read(answer)
  } catch (error) {
    clearTimeout(timer)
    if (init.signal?.aborted || error instanceof SyntaxError) throw error
    throw new ApiError(0, 'Unreachable', 'The sightglass server does not answer. Is it still running?')
  }
  if (answer.status === 401) locked.value = 'refused'
  throw await failure(answer)
}

async function failure(answer: Response): Promise<ApiError> {
  const body = (await answer.json().catch(() => null)) as {
    error?: { type?: string; message?: string; position?: number }
  } | null
  const error = body?.error
  return new ApiError(
    answer.status,
    error?.type ?? 'Error',
    error?.message ?? `The server answered ${answer.status} ${answer.statusText}`,
    error?.position ?? null,
  )
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
