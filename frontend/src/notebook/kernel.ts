// The way from a notebook's page to the kernel: announces the page, counts and acknowledges what arrives, and notices
// when the kernel is gone. For the kernel's side see views/surfaces/notebook/open_pages.py.
//
// A widget has one KernelLink in each page, however many times it is shown there ("Create New View for Output"). It
// announces itself when it is first shown, receives everything that is stored and then what is new, and acknowledges
// what it has drawn.

const DRAW_MS = 40 // views draw at most this often
const CHECK_MS = 2000 // soon enough for a reader, and rare enough to cost nothing

/** What is used of anywidget's model. */
export interface WidgetModel {
  get: (name: string) => unknown
  send: (content: unknown) => void
  on: (event: string, callback: (content: Message, buffers?: DataView[]) => void) => void
  comm_live?: boolean
  comm?: { jsServicesComm?: { isDisposed: boolean }; kernel?: { isDisposed: boolean } }
  widget_manager: { get_model: (id: string) => Promise<WidgetModel> }
}

/** A message of the kernel; an update has the number `n`, and replaces everything before it if `reset` is set. */
export interface Message {
  type: string
  to: string
  n: number
  reset: boolean
  [name: string]: unknown
}

/** One element of the page that shows the widget. */
export interface Shown {
  update: (message: Message, buffers: readonly DataView[]) => void
  showAlive: (alive: boolean) => void
  end: () => void
}

type Reply = { resolve: (value: unknown) => void; reject: (error: Error) => void }

export class KernelLink {
  private readonly page: string = crypto.randomUUID?.() ?? String(Math.random()).slice(2)
  private readonly shown = new Set<Shown>()
  private readonly replies = new Map<number, Reply>()
  private readonly n_records: Record<string, number> = {}
  private n = 0
  private n_requests = 0
  private isKnown = false
  private again = 0
  private watching = 0

  constructor(private readonly model: WidgetModel) {
    model.on('msg:custom', (content, buffers) => this.receive(content, buffers ?? []))
    model.on('comm_live_update', () => void this.check())
    document.addEventListener('visibilitychange', () => (document.hidden ? this.leave() : this.announce()))
    addEventListener('pagehide', () => this.leave())
  }

  /** Show the widget in one more element; the function that is returned takes it away. */
  show(one: Shown): () => void {
    this.shown.add(one)
    this.watch()
    this.announce()
    return () => {
      this.shown.delete(one)
      one.end()
      this.watch()
      if (!this.shown.size) this.send({ type: 'gone' })
    }
  }

  /** Ask the kernel for something, and return its reply. */
  request(content: object): Promise<unknown> {
    const request = ++this.n_requests
    return new Promise((resolve, reject) => {
      this.replies.set(request, { resolve, reject })
      this.send({ type: 'request', request, ...content })
    })
  }

  private send(message: object): void {
    try {
      this.model.send({ ...message, page: this.page })
    } catch {
      this.showAlive(false)
    }
  }

  /** Announce the page until the kernel replies: the first messages may wait for a running cell to end. */
  private announce(pause_ms = 250): void {
    clearTimeout(this.again)
    if (!this.shown.size || document.hidden) return
    this.isKnown = false
    this.send({ type: 'ready' })
    this.again = window.setTimeout(() => this.announce(Math.min(2 * pause_ms, 15_000)), pause_ms)
  }

  private leave(): void {
    if (this.shown.size) this.send({ type: 'gone' })
  }

  private receive(content: Message, buffers: DataView[]): void {
    const own = content?.to === this.page
    if (own && content.type === 'who') this.announce()
    else if (own && content.type === 'reply') this.reply(content)
    else if (content?.type === 'update' && (own || (content.to === '*' && !this.isKnown))) this.update(content, buffers, own)
  }

  private update(content: Message, buffers: DataView[], own: boolean): void {
    if (own) {
      if (content.reset) {
        clearTimeout(this.again)
        this.isKnown = true
      } else if (!this.isKnown) return // sent before this page announced itself again
      else if (content.n !== this.n + 1) return this.announce()
      this.n = content.n
    }
    for (const one of this.shown) one.update(content, buffers)
    this.drawn(own ? content.n : 0, (content.streams ?? []) as { id: string; n: number }[])
  }

  private reply({ request, value, error }: Message): void {
    const waiting = this.replies.get(request as number)
    this.replies.delete(request as number)
    if (error) waiting?.reject(new Error(String(error)))
    else waiting?.resolve(value)
  }

  /** Acknowledge after drawing, so that a slow page is sent less. */
  private drawn(n: number, streams: readonly { id: string; n: number }[]): void {
    const began = performance.now()
    const acknowledge = (now: number): void => {
      if (now - began < DRAW_MS) return void requestAnimationFrame(acknowledge)
      if (n) this.send({ type: 'ack', n })
      for (const { id, n } of streams) this.n_records[id] = n
      const detail = { key: this.model.get('key'), streams: { ...this.n_records }, at: performance.timeOrigin + performance.now() }
      document.dispatchEvent(new CustomEvent('sightglass:drawn', { detail }))
    }
    requestAnimationFrame(acknowledge)
  }

  /** Check whether the kernel is alive. Not every front end reports its end, so this also runs on a timer. */
  private async check(): Promise<void> {
    const model = await this.model.widget_manager.get_model(this.model.get('key') as string).catch(() => null)
    const comm = model?.comm
    this.showAlive(!(model?.comm_live === false || comm?.jsServicesComm?.isDisposed || comm?.kernel?.isDisposed))
  }

  private watch(): void {
    clearInterval(this.watching)
    this.watching = this.shown.size ? window.setInterval(() => void this.check(), CHECK_MS) : 0
  }

  private showAlive(alive: boolean): void {
    for (const one of this.shown) one.showAlive(alive)
    if (alive) return
    for (const { reject } of this.replies.values()) reject(new Error('The kernel is gone'))
    this.replies.clear()
  }
}
