// The records of one query. They are stored as they come; components are notified at most once a frame.

import { batch, signal } from '@preact/signals'
import { useLayoutEffect } from 'preact/hooks'
import { paced } from '../views/pace'
import { Records } from '../views/records'
import { socket } from './runs'
import type { StreamMessage } from './socket'
import { floats, integers } from './wire'

const LINGER_MS = 1_000
const POINTS = 2_000

/** The server's `view` message: the view of a stream's values, and the possible ones. */
export interface ViewChoice {
  view: string
  kinds: string[]
  possible: string[]
  form: { kind: string; length: number }
}

export interface Statistics {
  n_records: number
  n_events: number
  n_skipped: number
  n_dropped: number
  n_lost: number
  n_unpaired: number
  n_errors: number
  last_error: string
  n_left_out: number
  n_unfit: number
  n_waiting: number
  stride: number
  spent_s: number
  /** A remark, for example what the stream waits for. */
  note: string
  /** The server has lost the run, and looks for it. */
  lost: boolean
}

/** Why nothing comes, or comes no more. */
export interface StreamProblem {
  error: string
  message: string
  position: number | null
}

// Changes are batched: with many streams of many records a second, each frame is drawn once.
const changed = new Set<Stream>()
const redraw = paced(() => {
  const streams = [...changed]
  changed.clear()
  batch(() => streams.forEach((stream) => (stream.version.value = stream.records.version)))
})

function tellLater(stream: Stream): void {
  changed.add(stream)
  redraw.ask()
}

export class Stream {
  readonly records = new Records()
  /** Another number whenever records came. */
  readonly version = signal(0)
  readonly view = signal<ViewChoice | null>(null)
  readonly opened = signal<{ tag: string; note: string; query: string } | null>(null)
  readonly statistics = signal<Statistics | null>(null)
  readonly problem = signal<StreamProblem | null>(null)
  readonly ended = signal(false)
  private stop: () => void

  constructor(
    readonly run: string,
    readonly query: string,
  ) {
    this.stop = this.open(false)
  }

  /** Ask although it has a price, which the reader has seen. */
  confirm(): void {
    this.stop()
    this.problem.value = null
    this.stop = this.open(true)
  }

  close(): void {
    this.stop()
  }

  private open(confirm: boolean): () => void {
    return socket.open({ run: this.run, query: this.query, confirm, points: POINTS }, (message) => this.take(message))
  }

  private take(message: StreamMessage): void {
    switch (message.type) {
      case 'records':
        return this.takeRecords(message.body as Record<string, unknown>)
      case 'opened':
        this.problem.value = null
        this.ended.value = false
        this.opened.value = { tag: String(message.tag ?? ''), note: String(message.note ?? ''), query: String(message.query ?? '') }
        return
      case 'view':
        this.view.value = message as unknown as ViewChoice
        return
      case 'statistics':
        this.statistics.value = message as unknown as Statistics
        return
      case 'refused':
        this.problem.value = { error: String(message.error), message: String(message.message), position: typeof message.position === 'number' ? message.position : null }
        return
      case 'ended':
        this.ended.value = true
        this.problem.value = message.error ? { error: String(message.error), message: String(message.reason ?? ''), position: null } : null
        // The stream has ended: a new connection must not open it again.
        this.stop()
    }
  }

  private takeRecords(body: Record<string, unknown>): void {
    const columns = { step: floats(body.step), wall: floats(body.wall), index: integers(body.index), bits: Number(body.bits ?? 0), restarts: (body.restarts ?? []) as number[], ...(body.area !== undefined && { area: floats(body.area) }) }
    this.records.push(body.y === undefined ? { ...columns, values: body.values as unknown[] } : { ...columns, y: floats(body.y) })
    tellLater(this)
  }
}

const streams = new Map<string, { stream: Stream; holders: number; timer: number }>()
const keyOf = (run: string, query: string): string => `${run}\n${query}`

/** The stream of a query about a run: one for all panels that show it. */
export function streamOf(run: string, query: string): Stream {
  const key = keyOf(run, query)
  let held = streams.get(key)
  if (!held) {
    streams.set(key, (held = { stream: new Stream(run, query), holders: 0, timer: 0 }))
    letGoSoon(key)
  }
  return held.stream
}

/** It lingers a moment, for the panel may only have moved. */
function letGoSoon(key: string): void {
  const held = streams.get(key)!
  clearTimeout(held.timer)
  held.timer = window.setTimeout(() => {
    if (held.holders > 0) return
    held.stream.close()
    streams.delete(key)
  }, LINGER_MS)
}

export function useStreams(asked: readonly { run: string; query: string }[]): Stream[] {
  const keys = asked.map(({ run, query }) => keyOf(run, query))
  const found = asked.map(({ run, query }) => streamOf(run, query))
  // Held at once: on a page that is busy for a second, a stream would be let go before an effect holds it.
  useLayoutEffect(() => {
    for (const key of keys) streams.get(key)!.holders++
    return () => {
      for (const key of keys) {
        streams.get(key)!.holders--
        letGoSoon(key)
      }
    }
  }, [keys.join('\n\n')])
  return found
}
