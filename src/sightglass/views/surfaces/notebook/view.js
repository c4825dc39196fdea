// The page's side of a view in a notebook: receives records from the kernel, and passes them to the module of views.
//
// A model has one Page object in each page, however many times it is shown there ("Create New View for Output"). It
// announces itself when it is first shown, receives all stored records and then the new ones, and acknowledges what it
// has drawn. See views/surfaces/notebook/open_pages.py for the kernel's side.

const DRAW_MS = 40 // the module of views draws at most this often
const CHECK_MS = 2000 // soon enough for a reader, and rare enough to cost nothing
const LOADED = Symbol.for('sightglass.views')
const pages = new Map()

/** The module of views, loaded once per page. A separate widget, the library, holds its text. */
async function viewsOf(model) {
  const id = model.get('library')
  const loaded = (globalThis[LOADED] ??= new Map())
  if (!loaded.has(id)) {
    const loading = load(model, id)
    loaded.set(id, loading)
    loading.catch(() => loaded.delete(id))
  }
  return loaded.get(id)
}

async function load(model, id) {
  let library
  // After a reload widgets are restored in any order: the library may be the last.
  for (let tries = 0; !library; tries++) {
    try {
      library = await model.widget_manager.get_model(id)
    } catch (error) {
      if (tries > 40) throw error
    }
    if (!library) {
      if (tries > 40) throw new Error('The module of views did not arrive within 10 s')
      await new Promise((resolve) => setTimeout(resolve, 250))
    }
  }
  const url = URL.createObjectURL(new Blob([library.get('source')], { type: 'text/javascript' }))
  try {
    return await import(/* webpackIgnore: true */ /* @vite-ignore */ url)
  } finally {
    URL.revokeObjectURL(url)
  }
}

class Page {
  constructor(model) {
    this.model = model
    this.page = crypto.randomUUID?.() ?? String(Math.random()).slice(2)
    this.shown = new Set()
    this.n = 0
    this.isKnown = false
    this.counts = {}
    model.on('msg:custom', (content, buffers) => this.receive(content, buffers ?? []))
    model.on('comm_live_update', () => void this.check())
    document.addEventListener('visibilitychange', () => (document.hidden ? this.leave() : this.announce()))
    addEventListener('pagehide', () => this.leave())
  }

  send(message) {
    try {
      this.model.send({ ...message, page: this.page })
    } catch {
      this.showAlive(false)
    }
  }

  /** Announce the page until the kernel replies: the first messages may wait for a running cell to end. */
  announce(pause_ms = 250) {
    clearTimeout(this.again)
    if (!this.shown.size || document.hidden) return
    this.isKnown = false
    this.send({ type: 'ready' })
    this.again = setTimeout(() => this.announce(Math.min(2 * pause_ms, 15_000)), pause_ms)
  }

  leave() {
    if (this.shown.size) this.send({ type: 'gone' })
  }

  receive(content, buffers) {
    if (content?.type === 'who' && content.to === this.page) return this.announce()
    if (content?.type !== 'update' || !(content.to === this.page || (content.to === '*' && !this.isKnown))) return
    if (content.to === this.page) {
      if (content.reset) this.onReset()
      else if (!this.isKnown) return // sent before this page announced itself again
      else if (content.n !== this.n + 1) return this.announce()
      this.n = content.n
    }
    const streams = content.streams.map(({ id, n }, i) => ({ id, n, records: () => read(buffers[i]) }))
    const update = { reset: content.reset, settings: content.settings, streams }
    for (const one of this.shown) one.take(update)
    this.drawn(content.to === this.page ? content.n : 0, content.streams)
  }

  onReset() {
    clearTimeout(this.again)
    this.isKnown = true
  }

  /** Acknowledge after drawing, so that a slow page is sent less. */
  drawn(n, streams) {
    const began = performance.now()
    const acknowledge = (now) => {
      if (now - began < DRAW_MS) return void requestAnimationFrame(acknowledge)
      if (n) this.send({ type: 'ack', n })
      for (const { id, n } of streams) this.counts[id] = n
      const detail = { key: this.model.get('key'), streams: { ...this.counts }, at: performance.timeOrigin + performance.now() }
      document.dispatchEvent(new CustomEvent('sightglass:drawn', { detail }))
    }
    requestAnimationFrame(acknowledge)
  }

  /** Check whether the kernel is alive. Not every front end reports its end, so this also runs on a timer. */
  async check() {
    const model = await this.model.widget_manager.get_model(this.model.get('key')).catch(() => null)
    const comm = model?.comm
    const over = model?.comm_live === false || comm?.jsServicesComm?.isDisposed || comm?.kernel?.isDisposed
    this.showAlive(!over)
  }

  watch() {
    if (this.shown.size) this.watching ??= setInterval(() => void this.check(), CHECK_MS)
    else this.watching = clearInterval(this.watching)
  }

  showAlive(live) {
    for (const one of this.shown) one.showStatus(live ? '' : 'The kernel is gone. These are the last records it sent.')
  }

  async show(el) {
    const one = new ViewElement(el, this.model)
    this.shown.add(one)
    this.watch()
    // Announce before the module of views is loaded: the records and the module then arrive in parallel.
    this.announce()
    await one.begin()
    return () => {
      this.shown.delete(one)
      one.end()
      this.watch()
      if (!this.shown.size) this.send({ type: 'gone' })
    }
  }
}

/** One element of the page that shows the view. */
class ViewElement {
  constructor(el, model) {
    this.model = model
    this.status = ''
    this.waiting = []
    this.frame = document.createElement('div')
    this.frame.className = 'sightglass-notebook'
    this.frame.style.cssText = `width: 100%; min-height: ${model.get('options').height}px`
    el.append(this.frame)
  }

  async begin() {
    try {
      this.views = await viewsOf(this.model)
    } catch (error) {
      return this.showStatus(`Cannot load the view: ${error.message}`)
    }
    for (const update of this.waiting.splice(0)) this.take(update)
  }

  take(update) {
    if (!this.views) {
      if (update.reset) this.waiting = []
      return void this.waiting.push(update)
    }
    if (update.reset) this.mounted?.reset()
    if (update.settings) this.set(update.settings)
    for (const { id, records } of update.streams) this.mounted?.push(records(), id)
  }

  set(settings) {
    const { view, title, streams, options, notices } = settings
    const before = this.settings
    this.settings = settings
    if (!this.mounted) {
      this.frame.replaceChildren()
      const theme = options.dark === undefined ? 'auto' : options.dark ? 'dark' : 'light'
      const { height, points } = this.model.get('options')
      this.mounted = this.views.mount(this.frame, { ...options, view: view ?? '', title, names: streams.map(({ id }) => id), height, theme, max_points: points })
    } else {
      if (view !== before.view) this.mounted.setView(view ?? '')
      if (title !== before.title) this.mounted.setTitle(title)
      // Only if they changed: keep the options that the reader chose since.
      if (String(Object.entries(options)) !== String(Object.entries(before.options))) this.mounted.setOptions(options)
      for (const { id } of before.streams) if (!streams.some((one) => one.id === id)) this.mounted.remove(id)
    }
    for (const { id, ...style } of streams) this.mounted.setStream(id, style)
    this.mounted.setNotices(this.status ? [this.status, ...notices] : notices)
  }

  showStatus(text) {
    if (text === this.status) return
    this.status = text
    if (this.mounted) return this.mounted.setNotices([...(text ? [text] : []), ...this.settings.notices])
    const line = document.createElement('p')
    line.setAttribute('role', 'status')
    line.style.cssText = 'margin: 8px 12px; font: 13px/1.5 system-ui, sans-serif; opacity: 0.75'
    line.textContent = text
    this.frame.replaceChildren(line)
  }

  end() {
    this.mounted?.destroy()
    this.mounted = this.settings = null
    this.frame.remove()
  }
}

/** Read msgpack as the kernel writes it. */
function read(buffer) {
  const view = buffer instanceof DataView ? buffer : new DataView(buffer.buffer ?? buffer, buffer.byteOffset ?? 0, buffer.byteLength)
  const text = new TextDecoder()
  let at = 0
  const bytes = (n) => {
    const found = new Uint8Array(view.buffer, view.byteOffset + at, n)
    at += n
    return found
  }
  const count = (width) => {
    const n = width === 1 ? view.getUint8(at) : width === 2 ? view.getUint16(at) : view.getUint32(at)
    at += width
    return n
  }
  const number = (width, name) => {
    const value = view[name](at)
    at += width
    return typeof value === 'bigint' ? Number(value) : value
  }
  const list = (n) => Array.from({ length: n }, value)
  const map = (n) => Object.fromEntries(Array.from({ length: n }, () => [value(), value()]))
  const numbers = { 0xca: [4, 'getFloat32'], 0xcb: [8, 'getFloat64'], 0xcc: [1, 'getUint8'], 0xcd: [2, 'getUint16'], 0xce: [4, 'getUint32'], 0xcf: [8, 'getBigUint64'], 0xd0: [1, 'getInt8'], 0xd1: [2, 'getInt16'], 0xd2: [4, 'getInt32'], 0xd3: [8, 'getBigInt64'] }
  function value() {
    const kind = count(1)
    if (kind < 0x80) return kind
    if (kind < 0x90) return map(kind & 15)
    if (kind < 0xa0) return list(kind & 15)
    if (kind < 0xc0) return text.decode(bytes(kind & 31))
    if (kind >= 0xe0) return kind - 256
    if (numbers[kind]) return number(...numbers[kind])
    if (kind === 0xc0) return null
    if (kind === 0xc2 || kind === 0xc3) return kind === 0xc3
    if (kind >= 0xc4 && kind <= 0xc6) return bytes(count(1 << (kind - 0xc4)))
    if (kind >= 0xd9 && kind <= 0xdb) return text.decode(bytes(count(1 << (kind - 0xd9))))
    if (kind === 0xdc || kind === 0xdd) return list(count(kind === 0xdc ? 2 : 4))
    if (kind === 0xde || kind === 0xdf) return map(count(kind === 0xde ? 2 : 4))
    throw new Error(`Expected msgpack, got byte ${kind}`)
  }
  return value()
}

export default () => ({
  initialize({ model }) {
    pages.set(model.get('key'), new Page(model))
  },
  render({ model, el }) {
    const page = pages.get(model.get('key')) ?? new Page(model)
    pages.set(model.get('key'), page)
    return page.show(el)
  },
})
