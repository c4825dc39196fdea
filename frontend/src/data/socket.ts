// The page's one WebSocket: connects, says hello, reconnects, and then opens every stream again.
// A connection that died in silence, as in a laptop that slept, is found out by asking for a sign of life.

import { decode } from '@msgpack/msgpack'
import { signal } from '@preact/signals'
import { apiUrl, wake } from './api'
import { next, SILENT, type Link, type LinkEvent } from './reconnect'
import { currentToken, locked } from './session'
import type { Run } from './types'

export interface StreamRequest {
  run: string
  query: string
  confirm?: boolean
  points?: number
}

export interface StreamMessage {
  type: string
  [key: string]: unknown
}

/** After this long without a message, or after the machine slept, the server is probed; it has this long to answer. */
const QUIET_MS = 20_000
const ANSWER_MS = 5_000
const CHECK_MS = 2_000
/** As many as the server takes; it tells of the others, too, a little later. */
const MAX_WATCHED = 1_000
/** So many messages of a stream are acknowledged together, because each answer costs the server as much as a message.
 * Half of what the server sends ahead: the other half is on its way meanwhile. */
const ACKNOWLEDGED = 4

interface Opened {
  request: StreamRequest
  listen: (message: StreamMessage) => void
  n_unacknowledged: number
}

export class Socket {
  readonly link = signal<Link>({ kind: 'off' })
  /** Counts the times that the connection came back: what was missed has to be fetched again. */
  readonly returns = signal(0)
  private ws: WebSocket | null = null
  private timer = 0
  private streams = new Map<number, Opened>()
  private lastId = 0
  private watched: readonly string[] = []
  wasOpen = false
  private heard_ms = 0
  private checked_ms = 0
  private probed_ms: number | null = null

  constructor(
    private readonly onRuns: (runs: Run[], problem?: string) => void,
    private readonly onChanged: (runs: Run[]) => void,
  ) {
    addEventListener('online', () => this.awake())
    addEventListener('offline', () => this.probe())
    document.addEventListener('visibilitychange', () => !document.hidden && this.awake())
    setInterval(() => this.check(), CHECK_MS)
  }

  private awake(): void {
    this.step({ kind: 'awake' })
    this.probe()
  }

  /** Ask for a sign of life. */
  private probe(): void {
    if (this.link.peek().kind !== 'open' || this.probed_ms !== null) return
    this.probed_ms = Date.now()
    this.sendWatched()
  }

  private check(): void {
    const now = Date.now()
    const slept = this.checked_ms > 0 && now - this.checked_ms > 5 * CHECK_MS
    this.checked_ms = now
    if (this.link.peek().kind !== 'open') return
    if (slept || now - this.heard_ms > QUIET_MS) this.probe()
    if (this.probed_ms !== null && now - this.probed_ms > ANSWER_MS) this.hangUp()
  }

  /** The socket is dead: ignore its later messages. */
  private hangUp(): void {
    const ws = this.ws
    this.ws = null
    ws?.close()
    this.step({ kind: 'closed', code: SILENT })
  }

  start(): void {
    this.step({ kind: 'start' })
  }

  /** Ask a run; the answers come to `listen` until the returned function is called. */
  open(request: StreamRequest, listen: (message: StreamMessage) => void): () => void {
    const id = ++this.lastId
    this.streams.set(id, { request, listen, n_unacknowledged: 0 })
    if (this.link.value.kind === 'open') this.send({ type: 'open', id, ...request })
    return () => {
      this.streams.delete(id)
      if (this.link.value.kind === 'open') this.send({ type: 'close', id })
    }
  }

  /** Have the server look at the files of these runs often, instead of those of the last call. */
  watch(runs: readonly string[]): void {
    const wanted = runs.slice(0, MAX_WATCHED)
    if (wanted.length === this.watched.length && wanted.every((run, i) => run === this.watched[i])) return
    this.watched = wanted
    if (this.link.peek().kind === 'open') this.sendWatched()
  }

  private sendWatched(): void {
    this.send({ type: 'watch', runs: this.watched })
  }

  private step(event: LinkEvent): void {
    const before = this.link.peek()
    const after = next(before, event, Math.random())
    if (after === before) return
    this.link.value = after
    clearTimeout(this.timer)
    if (after.kind === 'dialing') this.dial()
    if (after.kind === 'waiting') this.timer = window.setTimeout(() => this.step({ kind: 'due' }), after.delay_ms)
    if (after.kind === 'refused') locked.value = 'refused'
    if (after.kind === 'open') this.greet()
  }

  private dial(): void {
    const url = apiUrl('live')
    url.protocol = url.protocol.replace('http', 'ws')
    const ws = new WebSocket(url)
    ws.binaryType = 'arraybuffer'
    ws.onopen = () => ws.send(JSON.stringify({ type: 'hello', token: currentToken() }))
    ws.onclose = ({ code }) => ws === this.ws && this.step({ kind: 'closed', code })
    ws.onmessage = ({ data }) => ws === this.ws && this.receive(data as string | ArrayBuffer)
    this.ws = ws
    this.heard_ms = Date.now()
    this.probed_ms = null
  }

  private greet(): void {
    this.send({ type: 'runs' })
    this.sendWatched()
    for (const [id, stream] of this.streams) {
      stream.n_unacknowledged = 0
      this.send({ type: 'open', id, ...stream.request })
    }
    if (this.wasOpen) this.returns.value++
    this.wasOpen = true
  }

  private receive(data: string | ArrayBuffer): void {
    this.heard_ms = Date.now()
    this.probed_ms = null
    if (typeof data !== 'string') return this.receiveRecords(data)
    const message = JSON.parse(data) as { type: string; id?: number; runs?: Run[]; problem?: string }
    if (message.type === 'welcome') (this.step({ kind: 'welcome' }), wake())
    else if (message.type === 'runs' && message.runs) this.onRuns(message.runs, message.problem)
    else if (message.type === 'changed' && message.runs) this.onChanged(message.runs)
    else if (message.id !== undefined) this.streams.get(message.id)?.listen(message)
  }

  private receiveRecords(data: ArrayBuffer): void {
    const body = decode(new Uint8Array(data)) as Record<string, unknown>
    const id = Number(body.id)
    const stream = this.streams.get(id)
    if (!stream) return
    stream.listen({ type: 'records', body })
    if (++stream.n_unacknowledged < ACKNOWLEDGED) return
    this.send({ type: 'ack', id, n: stream.n_unacknowledged })
    stream.n_unacknowledged = 0
  }

  private send(message: unknown): void {
    if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify(message))
  }
}
