// Acts and streams in words, and whether an act is still under way: pure.

import type { Act, StreamInfo } from '../../data/types'
import { count, number, value as shown } from '../../views/format'

export interface Acknowledged {
  applied: boolean
  event: string
  step: number
  wall_time: number
  result: unknown
  note: string
}

export interface Wanted {
  kind: 'set' | 'call' | 'pause' | 'resume' | 'stop'
  name?: string
  value?: unknown
  /** The event at which it is applied; without it the next one. */
  at?: string
}

export interface Underway {
  wanted: Wanted
  asked_s: number
  /** What the run waits for. */
  note: string
  /** Why the run refused. */
  problem: string
}

/** What the run's history shows as done is not under way any more. */
export function stillUnderway(one: Underway | undefined, history: readonly Act[]): Underway | null {
  if (!one || one.problem) return one ?? null
  const { kind, name } = one.wanted
  const done = history.some((act) => act.kind === kind && (act.name ?? '') === (name ?? '') && (act.wall_time ?? 0) >= one.asked_s)
  return done ? null : one
}

const DONE = { set: 'Set', call: 'Called', pause: 'Paused', resume: 'Resumed', stop: 'Stopping' }

export function toldOf(wanted: Wanted, { event, step, result }: Acknowledged): string {
  const what = [DONE[wanted.kind], wanted.name, wanted.kind === 'set' && `to ${shown(wanted.value)}`].filter(Boolean).join(' ')
  const came = wanted.kind !== 'call' || result === null || result === undefined ? '' : `: ${shown(result)}`
  return `${what} at ${event ? `${event} ` : ''}${step}${came}`
}

/** What a stream costs, and what was left out to keep it cheap. */
export function wordsOf(stream: StreamInfo, age_s: number): string[] {
  const { clients, n_records, n_events, spent_s, stride, n_skipped, n_dropped, n_errors, kept } = stream
  return [
    clients.length > 0 ? `asked by ${clients.length === 1 ? clients[0] : `${clients.length} clients: ${clients.join(', ')}`}` : 'asked by nobody now',
    kept ? 'recorded' : '',
    `${count(n_records)} records`,
    n_events > 0 ? `${number((1e6 * spent_s) / n_events, 3)} µs an event` : '',
    age_s > 0 ? `${number((100 * spent_s) / age_s, 2)} % of its time` : '',
    stride > 1 ? `one in ${stride} events` : '',
    n_skipped > 0 ? `${count(n_skipped)} skipped` : '',
    n_dropped > 0 ? `${count(n_dropped)} dropped` : '',
    n_errors > 0 ? `${count(n_errors)} errors` : '',
  ].filter(Boolean)
}
