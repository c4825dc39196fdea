// What came of one query: numbers in columns that grow, other values as the latest few.

import { batch, signal } from '@preact/signals'
import { socket } from './runs'
import type { StreamMessage } from './socket'
import { floats, integers } from './wire'

/** How many points a live line keeps: the newest. */
export const MAX_POINTS = 20_000
export const MAX_VALUES = 200

export interface Numbers {
  step: Float64Array
  wall: Float64Array
  index: Float64Array
  y: Float64Array
}

export interface Value {
  index: number
  step: number
  wall: number
  value: unknown
}

export interface ViewChoice {
  view: string
  kinds: string[]
  possible: string[]
}

export interface Statistics {
  n_records: number
  n_events: number
  n_skipped: number
  n_dropped: number
  n_left_out?: number
  n_lost?: number
  n_errors?: number
  last_error?: string
  stride: number
  spent_s: number
}

const EMPTY: Numbers = { step: new Float64Array(), wall: new Float64Array(), index: new Float64Array(), y: new Float64Array() }
const COLUMNS = ['step', 'wall', 'index', 'y'] as const

/** Put new rows behind old ones. Rows that came before, as after a reconnection, are left out. */
export function joined(old: Numbers, fresh: Numbers): Numbers {
  const lastWall = old.wall[old.wall.length - 1] ?? -Infinity
  const lastIndex = old.index[old.index.length - 1] ?? -Infinity
  let from = 0
  while (from < fresh.y.length && fresh.index[from]! <= lastIndex && fresh.wall[from]! <= lastWall) from++
  if (from === fresh.y.length) return old
  return Object.fromEntries(
    COLUMNS.map((name) => {
      const added = fresh[name].subarray(from)
      const kept = old[name].subarray(Math.max(0, old.y.length + added.length - MAX_POINTS))
      const column = new Float64Array(kept.length + added.length)
      column.set(kept)
      column.set(added, kept.length)
      return [name, column]
    }),
  ) as unknown as Numbers
}

export class Stream {
  readonly numbers = signal<Numbers>(EMPTY)
  readonly values = signal<Value[]>([])
  readonly view = signal<ViewChoice | null>(null)
  readonly note = signal('')
  readonly tag = signal('')
  readonly statistics = signal<Statistics | null>(null)
  /** Why nothing comes, or comes no more. */
  readonly problem = signal<string | null>(null)
  readonly ended = signal(false)
  private readonly stop: () => void

  constructor(run: string, query: string) {
    this.stop = socket.open({ run, query, points: 1_000 }, (message) => batch(() => this.take(message)))
  }

  close(): void {
    this.stop()
  }

  private take(message: StreamMessage): void {
    switch (message.type) {
      case 'records':
        return this.takeRecords((message as { body: Record<string, unknown> }).body)
      case 'opened':
        this.problem.value = null
        this.ended.value = false
        this.note.value = String((message as { note?: string }).note ?? '')
        this.tag.value = String((message as { tag?: string }).tag ?? '')
        return
      case 'view':
        this.view.value = message as unknown as ViewChoice
        return
      case 'statistics':
        this.statistics.value = message as unknown as Statistics
        return
      case 'refused':
        this.problem.value = String((message as { message?: string }).message)
        return
      case 'ended':
        this.ended.value = true
        this.problem.value = String((message as { reason?: string }).reason ?? '') || null
    }
  }

  private takeRecords(body: Record<string, unknown>): void {
    const [step, wall, index] = [floats(body.step), floats(body.wall), integers(body.index)]
    if (body.y !== undefined) {
      this.numbers.value = joined(this.numbers.peek(), { step, wall, index, y: floats(body.y) })
      return
    }
    const values = (body.values as unknown[]).map((value, i): Value => ({ index: index[i]!, step: step[i]!, wall: wall[i]!, value }))
    const last = this.values.peek().at(-1)
    const fresh = last ? values.filter((one) => one.index > last.index || one.wall > last.wall) : values
    this.values.value = [...this.values.peek(), ...fresh].slice(-MAX_VALUES)
  }
}
