// The HTTP client: every answer is typed, every failure is an `ApiError` with the server's own words.

import { decode } from '@msgpack/msgpack'
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
  return ask(apiUrl(path, query), { signal }, (answer) => answer.json() as Promise<T>)
}

export async function getBytes(path: string, query: Query = {}): Promise<Blob> {
  if (file) return kept(replyTo(path, query)) as Blob
  return ask(apiUrl(path, query), {}, (answer) => answer.blob())
}

export async function postForBytes(path: string, body: unknown): Promise<Blob> {
  return ask(apiUrl(path), posted(body), (answer) => answer.blob())
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  if (file) return kept(replyToPost(path, body as object)) as T
  return ask(apiUrl(path), posted(body), (answer) => answer.json() as Promise<T>)
}

export async function postForMessagePack(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
  if (file) return kept(replyToPost(path, body as object))
  const bytes = await ask(apiUrl(path), { ...posted(body), signal }, (answer) => answer.arrayBuffer())
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

/** What `read` makes of the reply. A reply that breaks off counts as a server that does not answer. */
async function ask<T>(url: URL, init: RequestInit, read: (answer: Response) => Promise<T>): Promise<T> {
  if (locked.peek()) throw new ApiError(401, 'UnauthorizedError', 'This link is no longer valid')
  const token = currentToken()
  const headers = { ...init.headers, ...(token && { Authorization: `Bearer ${token}` }) }
  let answer: Response
  try {
    answer = await fetch(url, { ...init, headers, credentials: 'same-origin', referrerPolicy: 'no-referrer' })
    if (answer.ok) return await read(answer)
  } catch (error) {
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
