// The page's side of a view in a notebook: takes what the kernel sends, and hands it to the module of views.
//
// One model has one desk in each page, however many times it is shown there ("Create New View for Output"). The desk
// announces itself when it is first shown, is sent all that is kept and then what is new, and acknowledges what was
// drawn. See views/surfaces/notebook/open_pages.py for what the kernel makes of it.

const TICK_MS = 40
const LOOK_MS = 2000
const KEPT = Symbol.for('sightglass.views')
const desks = new Map()

/** The module of views: one for all that is shown in this page. It stands in a widget of its own, as text. */
async function viewsOf(model) {
  const id = model.get('library')
  const kept = (globalThis[KEPT] ??= new Map())
  if (!kept.has(id)) {
    const loading = load(model, id)
    kept.set(id, loading)
    loading.catch(() => kept.delete(id))
  }
  return kept.get(id)
}

async function load(model, id) {
  let library
  // After a reload widgets come back in any order: the library may be the last.
  for (let tries = 0; !library; tries++) {
    try {
      library = await model.widget_manager.get_model(id)
    } catch (error) {
      if (tries > 40) throw error
    }
    if (!library) {
      if (tries > 40) throw new Error('The module of views did not arrive')
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

class Desk {
  constructor(model) {
    this.model = model
    this.page = crypto.randomUUID?.() ?? String(Math.random()).slice(2)
    this.shown = new Set()
    this.n = 0
    this.welcome = false
    this.counts = {}
    model.on('msg:custom', (content, buffers) => this.hear(content, buffers ?? []))
    model.on('comm_live_update', () => void this.look())
    document.addEventListener('visibilitychange', () => (document.hidden ? this.leave() : this.announce()))
    addEventListener('pagehide', () => this.leave())
  }

  say(message) {
    try {
      this.model.send({ ...message, page: this.page })
    } catch {
      this.tellLife(false)
    }
  }

  /** Again and again until it is heard: the first words may wait in the kernel behind a cell that is running. */
  announce(pause_ms = 250) {
    clearTimeout(this.again)
    if (!this.shown.size || document.hidden) return
    this.welcome = false
    this.say({ type: 'ready' })
    this.again = setTimeout(() => this.announce(Math.min(2 * pause_ms, 15_000)), pause_ms)
  }

  leave() {
    if (this.shown.size) this.say({ type: 'gone' })
  }

  hear(content, buffers) {
    if (content?.type === 'who' && content.to === this.page) return this.announce()
    if (content?.type !== 'update' || !(content.to === this.page || (content.to === '*' && !this.welcome))) return
    if (content.to === this.page) {
      if (content.reset) this.welcomed()
      else if (!this.welcome) return // of the time before it announced itself anew
      else if (content.n !== this.n + 1) return this.announce()
      this.n = content.n
    }
    const streams = content.streams.map(({ id, n }, i) => ({ id, n, records: () => read(buffers[i]) }))
    const update = { reset: content.reset, settings: content.settings, streams }
    for (const one of this.shown) one.take(update)
    this.drawn(content.to === this.page ? content.n : 0, content.streams)
  }

  welcomed() {
    clearTimeout(this.again)
    this.welcome = true
  }

  /** Acknowledge when it is drawn, so that a slow page is sent less. */
  drawn(n, streams) {
    const began = performance.now()
    const look = (now) => {
      if (now - began < TICK_MS) return void requestAnimationFrame(look)
      if (n) this.say({ type: 'ack', n })
      for (const { id, n } of streams) this.counts[id] = n
      const detail = { key: this.model.get('key'), streams: { ...this.counts }, at: performance.timeOrigin + performance.now() }
      document.dispatchEvent(new CustomEvent('sightglass:drawn', { detail }))
    }
    requestAnimationFrame(look)
  }

  /** Whether the kernel lives. Not every front end says so when it ends: it is looked at now and then, too. */
  async look() {
    const model = await this.model.widget_manager.get_model(this.model.get('key')).catch(() => null)
    const comm = model?.comm
    const over = model?.comm_live === false || comm?.jsServicesComm?.isDisposed || comm?.kernel?.isDisposed
    this.tellLife(!over)
  }

  watch() {
    if (this.shown.size) this.watching ??= setInterval(() => void this.look(), LOOK_MS)
    else this.watching = clearInterval(this.watching)
  }

  tellLife(live) {
    for (const one of this.shown) one.tell(live ? '' : 'The kernel is gone: this is what had come.')
  }

  async show(el) {
    const one = new Shown(el, this.model)
    this.shown.add(one)
    this.watch()
    // Announced at once, before the module of views is there: both are on their way at the same time.
    this.announce()
    await one.begin()
    return () => {
      this.shown.delete(one)
      one.end()
      this.watch()
      if (!this.shown.size) this.say({ type: 'gone' })
    }
  }
}

/** One place in the page where the view is shown. */
class Shown {
  constructor(el, model) {
    this.model = model
    this.lost = ''
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
      return this.tell(`The view could not be loaded: ${error.message}`)
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
      // The reader may have chosen others since: theirs stay.
      if (String(Object.entries(options)) !== String(Object.entries(before.options))) this.mounted.setOptions(options)
      for (const { id } of before.streams) if (!streams.some((one) => one.id === id)) this.mounted.remove(id)
    }
    for (const { id, ...style } of streams) this.mounted.setStream(id, style)
    this.mounted.setNotices(this.lost ? [this.lost, ...notices] : notices)
  }

  tell(text) {
    if (text === this.lost) return
    this.lost = text
    if (this.mounted) return this.mounted.setNotices([...(text ? [text] : []), ...this.settings.notices])
    const word = document.createElement('p')
    word.setAttribute('role', 'status')
    word.style.cssText = 'margin: 8px 12px; font: 13px/1.5 system-ui, sans-serif; opacity: 0.75'
    word.textContent = text
    this.frame.replaceChildren(word)
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
    desks.set(model.get('key'), new Desk(model))
  },
  render({ model, el }) {
    const desk = desks.get(model.get('key')) ?? new Desk(model)
    desks.set(model.get('key'), desk)
    return desk.show(el)
  },
})
