// Series on demand: charts request series; requests of one frame travel together, requests that are no longer needed are
// dropped before they are sent, and of series that grow the tails are fetched.

import { effect, signal, type Signal } from '@preact/signals'
import { messageOf, postForMessagePack } from './api'
import { versionOf } from './growth'
import { repeated } from './repeated'
import { byKey } from './runs'
import { extended } from './tail'
import type { Scalars, ScalarsRequest } from './types'
import { scalarsOf, WireError } from './wire'

const MAX_BATCH = 48
const MAX_IN_FLIGHT = 2
/** Enough for 100 charts of 20 runs, so that scrolling back fetches nothing; of about 10 kB each. */
const MAX_IDLE = 2_000

export interface Entry {
  request: ScalarsRequest
  data: Signal<Scalars | null>
  error: Signal<string | null>
  n_users: number
  state: 'new' | 'waiting' | 'requested' | 'there'
  /** The version of its run when it was asked for. */
  version: string
}

/** The step tracks of all series that came so far. */
export const tracks = signal<readonly string[]>([])

const entries = new Map<string, Entry>()
/** Those that nobody holds, the least recently used first. */
const idle = new Map<string, Entry>()
const waiting: Entry[] = []
let n_in_flight = 0
let flush = 0

const keyOf = (r: ScalarsRequest): string => JSON.stringify([r.run, r.tag, r.x, r.from, r.to, r.points])

/** Want a series: its entry fills by itself. Every `want` needs one `release`. */
export function want(request: ScalarsRequest): Entry {
  const key = keyOf(request)
  let entry = entries.get(key)
  if (!entry) entry = { request, data: signal(null), error: signal(null), n_users: 0, state: 'new', version: '' }
  entries.set(key, entry)
  idle.delete(key)
  entry.n_users++
  if (entry.state === 'new') enqueue(entry)
  else if (stale(entry)) tails.tell()
  return entry
}

export function release(entry: Entry): void {
  if (--entry.n_users > 0) return
  idle.set(keyOf(entry.request), entry)
  if (idle.size <= MAX_IDLE) return
  const [oldest] = idle.keys()
  idle.delete(oldest!)
  entries.delete(oldest!)
}

function enqueue(entry: Entry): void {
  entry.state = 'waiting'
  waiting.push(entry)
  flush ||= window.setTimeout(send, 8)
}

function send(): void {
  flush = 0
  while (waiting.length && n_in_flight < MAX_IN_FLIGHT) {
    const batch: Entry[] = []
    // The last wish first: it is what the reader looks at now.
    while (waiting.length && batch.length < MAX_BATCH) {
      const entry = waiting.pop()!
      if (entry.n_users > 0) batch.push(entry)
      else entry.state = 'new'
    }
    if (batch.length) void fetchAll(batch)
  }
}

async function fetchAll(batch: Entry[]): Promise<void> {
  n_in_flight++
  for (const entry of batch) [entry.state, entry.version] = ['requested', currentOf(entry)]
  const answers = await ask(batch.map((entry) => entry.request))
  batch.forEach((entry, i) => settle(entry, answers[i]!))
  n_in_flight--
  if (waiting.length) send()
}

function settle(entry: Entry, answer: Scalars | string): void {
  entry.state = 'there'
  if (typeof answer === 'string') entry.error.value = answer
  else {
    ;[entry.data.value, entry.error.value] = [answer, null]
    const known = tracks.peek()
    if (answer.tracks.some((track) => !known.includes(track))) tracks.value = [...new Set([...known, ...answer.tracks])].sort()
  }
  if (pending(entry)) tails.tell()
}

/** Ask for series at once; a failure as a whole is every series' failure. */
export async function ask(requests: ScalarsRequest[]): Promise<(Scalars | string)[]> {
  try {
    const answer = await postForMessagePack('scalars', { requests })
    if (!Array.isArray(answer) || answer.length !== requests.length) throw new WireError('Expected one reply for each series')
    return answer.map(scalarsOf)
  } catch (error) {
    return requests.map(() => messageOf(error))
  }
}

const currentOf = (entry: Entry): string => versionOf(byKey.peek().get(entry.request.run))
const pending = (entry: Entry): boolean => (entry.data.peek()?.n_pending ?? 0) > 0
const stale = (entry: Entry): boolean => entry.n_users > 0 && entry.state === 'there' && (entry.version !== currentOf(entry) || pending(entry))

const tails = repeated(fetchTails)

async function fetchTails(): Promise<void> {
  const whole: Entry[] = []
  const growing: Entry[] = []
  for (const entry of entries.values()) {
    if (!stale(entry)) continue
    const data = entry.data.peek()
    if (!data || data.x.length === 0 || data.x.length > 4 * entry.request.points) whole.push(entry)
    else growing.push(entry)
  }
  whole.forEach(enqueue)
  for (let i = 0; i < growing.length; i += MAX_BATCH) {
    const part = growing.slice(i, i + MAX_BATCH)
    for (const entry of part) entry.version = currentOf(entry)
    const last = part.map((entry) => entry.data.peek()!)
    const requests = part.map((entry, j) => ({ ...entry.request, since: last[j]!.cursor }))
    const answers = await ask(requests)
    part.forEach((entry, j) => {
      const answer = answers[j]!
      if (typeof answer === 'string') entry.error.value = answer
      else if (entry.data.peek() === last[j]) entry.data.value = extended(last[j]!, answer)
    })
  }
  if (growing.some((entry) => stale(entry) && pending(entry))) tails.tell()
}

/** Extend the series of runs that grow. */
export function followScalars(): void {
  effect(() => {
    for (const run of byKey.value.values()) versionOf(run)
    tails.tell()
  })
}
