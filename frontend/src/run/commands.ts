// Commands and streams in words, and whether a command is still pending: pure.

import type { Acknowledgement, HistoryEntry, StreamInfo } from '../data/types'
import { count, number, value as shown } from '../views/format'

export interface Command {
  kind: 'set' | 'call' | 'pause' | 'resume' | 'stop'
  name?: string
  value?: unknown
  /** The arguments of an action, by name. */
  keywords?: Record<string, unknown>
  /** The event at which it is applied; by default the next one. */
  at?: string
}

export interface Pending {
  command: Command
  sent_s: number
  /** The event that the run waits for, in words. */
  note: string
  /** Why the run refused. */
  problem: string
}

/** A command that the run's history shows as applied is no longer pending. */
export function stillPending(one: Pending | undefined, history: readonly HistoryEntry[]): Pending | null {
  if (!one || one.problem) return one ?? null
  const { kind, name } = one.command
  const done = history.some((entry) => entry.kind === kind && (entry.name ?? '') === (name ?? '') && (entry.wall_time ?? 0) >= one.sent_s)
  return done ? null : one
}

/** An argument as it was typed: JSON, or Python's True, False and None, or else text; as on the command line. */
export function argumentOf(text: string): unknown {
  try {
    return JSON.parse({ True: 'true', False: 'false', None: 'null' }[text] ?? text)
  } catch {
    return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : text
  }
}

const DONE = { set: 'Set', call: 'Called', pause: 'Paused', resume: 'Resumed', stop: 'Stopping' }

export function outcomeOf(command: Command, { event, step, result }: Acknowledgement): string {
  const what = [DONE[command.kind], command.name, command.kind === 'set' && `to ${shown(command.value)}`].filter(Boolean).join(' ')
  const came = command.kind !== 'call' || result === null || result === undefined ? '' : `: ${shown(result)}`
  return `${what} at ${event ? `${event} ` : ''}${step}${came}`
}

/** What a stream costs the run, and how much was left out to stay within the budget. */
export function costsOf(stream: StreamInfo, age_s: number): string[] {
  const { clients, n_records, n_events, spent_s, stride, n_skipped, n_dropped, n_unpaired = 0, n_errors, recorded } = stream
  return [
    clients.length > 0 ? `queried by ${clients.length === 1 ? clients[0] : `${clients.length} clients: ${clients.join(', ')}`}` : 'no client now',
    recorded ? 'recorded' : '',
    `${count(n_records)} records`,
    n_events > 0 ? `${number((1e6 * spent_s) / n_events, 3)} µs an event` : '',
    age_s > 0 ? `${number((100 * spent_s) / age_s, 2)} % of its time` : '',
    stride > 1 ? `one in ${stride} events` : '',
    n_skipped > 0 ? `${count(n_skipped)} skipped` : '',
    n_dropped > 0 ? `${count(n_dropped)} dropped` : '',
    n_unpaired > 0 ? `${count(n_unpaired)} without a partner` : '',
    n_errors > 0 ? `${count(n_errors)} errors` : '',
  ].filter(Boolean)
}
