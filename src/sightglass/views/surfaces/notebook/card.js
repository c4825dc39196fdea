// The card of a run in a notebook: its events, controls, actions and queries, and buttons that send commands. Text is
// only ever set as text.

const CSS = `
:host { contain: content; display: block; }
.card {
  color-scheme: light;
  --surface: #ffffff; --sunken: #f3f5f6; --line: #dfe4e7; --line-strong: #b9c2c8; --text: #182026; --muted: #55626c;
  --accent: #0d6e83; --accent-text: #0b6176; --accent-soft: #e0f0f3; --on-accent: #ffffff; --good: #1c7f5c; --warn: #8f5f00;
  --bad: #b3261e; --bad-soft: #fdecea;
  --mono: ui-monospace, 'SF Mono', 'Cascadia Mono', 'Roboto Mono', 'DejaVu Sans Mono', monospace;
  container-type: inline-size; box-sizing: border-box; max-width: 1080px; margin: 2px 0; overflow: hidden;
  background: var(--surface); color: var(--text); border: 1px solid var(--line); border-radius: 10px;
  font: 13px/1.45 system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif; font-variant-numeric: tabular-nums;
}
.card[data-theme='dark'] {
  color-scheme: dark;
  --surface: #161b1f; --sunken: #0f1316; --line: #283037; --line-strong: #46525b; --text: #e4eaee; --muted: #98a6b0;
  --accent: #3fb2c6; --accent-text: #63c6d7; --accent-soft: #14333a; --on-accent: #06181c; --good: #4cc295; --warn: #e0ad4a;
  --bad: #f0837a; --bad-soft: #3a1d1c;
}
*, *::before, *::after { box-sizing: border-box; }
[hidden] { display: none !important; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 12px; padding: 10px 14px; border-bottom: 1px solid var(--line); }
h2 { margin: 0; font-size: 15px; font-weight: 650; overflow-wrap: anywhere; }
h3 { margin: 0 0 6px; font-size: 11.5px; font-weight: 650; color: var(--muted); letter-spacing: 0.02em; }
.state { display: inline-flex; align-items: center; gap: 6px; font-weight: 550; }
.state::before { content: ''; width: 8px; height: 8px; border-radius: 50%; background: var(--muted); }
.state[data-state='running'] { color: var(--good); }
.state[data-state='running']::before { background: var(--good); }
.state[data-state='paused'], .state[data-state='stopping'], .state[data-state='silent'] { color: var(--warn); }
.state[data-state='paused']::before, .state[data-state='stopping']::before, .state[data-state='silent']::before { background: var(--warn); }
.state[data-state='failed'], .state[data-state='died'] { color: var(--bad); }
.muted { color: var(--muted); }
.commands { margin-left: auto; display: flex; flex-wrap: wrap; align-items: center; gap: 8px; }
button { font: inherit; font-weight: 550; height: 28px; padding: 0 12px; color: var(--text); background: var(--surface); border: 1px solid var(--line-strong); border-radius: 6px; cursor: pointer; }
button:hover:not(:disabled) { background: var(--sunken); }
button:disabled { opacity: 0.5; cursor: default; }
button.main { color: var(--on-accent); background: var(--accent); border-color: var(--accent); }
button.bad { color: var(--bad); border-color: color-mix(in srgb, var(--bad) 45%, var(--surface)); }
button.bad:hover:not(:disabled) { background: var(--bad-soft); }
button.confirm { color: #fff; background: #b3261e; border-color: #b3261e; }
button.confirm:hover:not(:disabled) { background: #8f1e18; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.body { display: grid; grid-template-columns: minmax(0, 1.15fr) minmax(0, 1fr); }
.body > div { padding: 12px 14px; min-width: 0; }
.body > div + div { border-left: 1px solid var(--line); }
.body > div[hidden] + div, .body > .alone { grid-column: 1 / -1; border-left: 0; }
@container (max-width: 620px) {
  .body { grid-template-columns: minmax(0, 1fr); }
  .body > div + div { border-left: 0; border-top: 1px solid var(--line); }
}
section + section { margin-top: 14px; }
.event { display: flex; align-items: baseline; gap: 8px; padding: 2px 0; }
.event b { font-weight: 600; overflow-wrap: anywhere; }
.event .count { margin-left: auto; white-space: nowrap; }
.event + ul { margin: 0 0 8px; }
.note { margin: 0 0 4px; font-size: 11.5px; color: var(--muted); }
ul { list-style: none; margin: 0; padding: 0; }
.observable { display: grid; grid-template-columns: minmax(70px, auto) minmax(0, 1fr) auto; gap: 0 10px; align-items: center; width: 100%; min-height: 24px; height: auto; padding: 2px 8px; border: 0; background: none; text-align: left; font-weight: 400; border-radius: 5px; }
.observable:hover:not(:disabled) { background: var(--accent-soft); }
.observable .name { font: 500 12px/1.4 var(--mono); overflow-wrap: anywhere; max-width: 30ch; }
.observable .type { font: 11.5px/1.4 var(--mono); color: var(--muted); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.observable .hint { font-size: 11.5px; color: var(--accent-text); opacity: 0; white-space: nowrap; }
.observable:hover .hint, .observable:focus-visible .hint, .observable.copied .hint { opacity: 1; }
.observable.copied .hint { color: var(--good); }
.control { display: grid; grid-template-columns: minmax(80px, 1fr) minmax(0, 1.7fr); gap: 1px 12px; align-items: center; padding: 6px 0; border-top: 1px solid var(--line); }
.control:first-of-type { border-top: 0; padding-top: 0; }
.control label { font-weight: 550; overflow-wrap: anywhere; }
.control .bounds { display: block; font-weight: 400; font-size: 11.5px; color: var(--muted); }
.field { display: flex; align-items: center; gap: 10px; justify-content: flex-end; min-width: 0; }
input, select { font: inherit; color: var(--text); background: var(--surface); border: 1px solid var(--line-strong); border-radius: 6px; height: 28px; padding: 0 8px; min-width: 0; }
input[type='range'] { flex: 1; padding: 0; border: 0; background: none; accent-color: var(--accent); margin: 0; }
input[type='number'] { width: 96px; }
input[type='text'] { flex: 1; max-width: 240px; }
:disabled { cursor: default; }
.switch { position: relative; width: 38px; height: 22px; padding: 0; border-radius: 11px; background: var(--line-strong); border: 0; }
.switch:hover:not(:disabled) { background: var(--line-strong); }
.switch::after { content: ''; position: absolute; top: 3px; left: 3px; width: 16px; height: 16px; border-radius: 50%; background: #fff; transition: left 0.12s; }
.switch[aria-checked='true'], .switch[aria-checked='true']:hover:not(:disabled) { background: var(--accent); }
.switch[aria-checked='true']::after { left: 19px; }
.result { grid-column: 1 / -1; font-size: 11.5px; color: var(--muted); overflow-wrap: anywhere; min-height: 0; }
.result[data-kind='done'] { color: var(--good); }
.result[data-kind='wait'] { color: var(--warn); }
.result[data-kind='bad'] { color: var(--bad); }
.actions { display: flex; flex-wrap: wrap; gap: 8px; }
.streams { border-top: 1px solid var(--line); padding: 10px 14px 12px; }
.streams table { width: 100%; border-collapse: collapse; }
.streams td { padding: 3px 12px 3px 0; vertical-align: baseline; white-space: nowrap; color: var(--muted); font-size: 12px; }
.streams td:first-child { width: 60%; white-space: normal; overflow-wrap: anywhere; font: 12px/1.4 var(--mono); color: var(--text); }
.streams td:last-child { padding-right: 0; text-align: right; }
.lossy { color: var(--warn) !important; }
details { border-top: 1px solid var(--line); padding: 8px 14px; }
summary { cursor: pointer; color: var(--muted); font-size: 11.5px; font-weight: 650; }
dl { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 2px 14px; margin: 8px 0 2px; font-size: 12px; }
dt { color: var(--muted); }
dd { margin: 0; font-family: var(--mono); overflow-wrap: anywhere; }
.message { margin: 0; padding: 8px 14px; border-top: 1px solid var(--line); font-size: 12px; overflow-wrap: anywhere; white-space: pre-wrap; }
.message[data-kind='done'] { color: var(--good); }
.message[data-kind='wait'] { color: var(--warn); }
.message[data-kind='bad'] { color: var(--bad); background: var(--bad-soft); }
`

const CONFIRM_MS = 6000
const CHECK_MS = 2000
const sheet = new CSSStyleSheet()
sheet.replaceSync(CSS)
const pages = new Map()

/** Make an element: a tag with classes, its properties, and its children. */
function make(kind, given = {}, ...inside) {
  const [tag, ...classes] = kind.split('.')
  const made = document.createElement(tag)
  made.className = classes.join(' ')
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value)
    else if (name in made && !name.includes('-')) made[name] = value
    else made.setAttribute(name, value)
  }
  made.append(...inside.filter((one) => one !== null && one !== undefined && one !== ''))
  return made
}

const count = (n) => Number(n).toLocaleString('en')
const short = (value) => (typeof value === 'number' ? String(Number.isInteger(value) ? value : +value.toPrecision(6)) : String(value))

function duration(seconds) {
  const s = Math.floor(seconds)
  const two = (n) => String(n).padStart(2, '0')
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`
}

/** A slider over several powers of ten moves in powers of ten. */
const logarithmic = ({ type, min, max, value }) => type !== 'int' && min >= 0 && max / (min || Math.min(max / 1e6, value || max)) >= 1000
const lowest = ({ min, max }) => min || max / 1e6

function positionOf(control, value) {
  const { min, max } = control
  if (!logarithmic(control)) return (1000 * (value - min)) / (max - min || 1)
  return value <= lowest(control) ? 0 : 1000 * (Math.log(value / lowest(control)) / Math.log(max / lowest(control)))
}

function valueAt(control, position) {
  const { type, min, max } = control
  if (position <= 0) return min
  if (position >= 1000) return max
  const exact = logarithmic(control) ? lowest(control) * (max / lowest(control)) ** (position / 1000) : min + ((max - min) * position) / 1000
  return type === 'int' ? Math.round(exact) : Number(exact.toPrecision(3))
}

function boundsOf({ type, min, max, choices }) {
  if (choices?.length || type === 'bool') return ''
  if (min !== null && max !== null) return `${type}, ${short(min)} to ${short(max)}`
  return min !== null ? `${type}, at least ${short(min)}` : max !== null ? `${type}, at most ${short(max)}` : type
}

class Page {
  constructor(model) {
    this.model = model
    this.page = crypto.randomUUID?.() ?? String(Math.random()).slice(2)
    this.shown = new Set()
    this.info = model.get('options').info
    this.pending = new Map()
    this.n_commands = 0
    model.on('msg:custom', (content) => this.receive(content))
    model.on('comm_live_update', () => void this.check())
    document.addEventListener('visibilitychange', () => this.shown.size && (document.hidden ? this.send({ type: 'gone' }) : this.announce()))
    addEventListener('pagehide', () => this.shown.size && this.send({ type: 'gone' }))
  }

  send(message) {
    try {
      this.model.send({ ...message, page: this.page })
    } catch {
      this.live(false)
    }
  }

  /** Announce the page until the kernel replies: the first messages may wait for a running cell to end. */
  announce(pause_ms = 250) {
    clearTimeout(this.again)
    if (!this.shown.size || document.hidden) return
    this.send({ type: 'ready' })
    this.again = setTimeout(() => this.announce(Math.min(2 * pause_ms, 15_000)), pause_ms)
  }

  receive(content) {
    if (content?.type === 'info') {
      clearTimeout(this.again)
      this.rates(content.info)
      this.info = content.info
      for (const one of this.shown) one.draw(content.info)
      if (this.shown.size) requestAnimationFrame(() => this.send({ type: 'ack', n: content.n }))
    } else if (content?.type === 'result' && content.to === this.page) {
      this.pending.get(content.command)?.(content)
      this.pending.delete(content.command)
    }
  }

  /** Add the rate of each event since the description before. */
  rates(info) {
    const took = info.age_s - this.info.age_s
    if (!(took > 0)) return
    for (const event of info.events) {
      const before = this.info.events.find(({ name }) => name === event.name)
      if (before) event.rate = (event.n - before.n) / took
    }
  }

  command(wanted, done) {
    const command = ++this.n_commands
    this.pending.set(command, done)
    this.send({ type: 'command', command, ...wanted })
  }

  /** Check whether the kernel is alive. Not every front end reports its end, so this also runs on a timer. */
  async check() {
    const model = await this.model.widget_manager.get_model(this.model.get('key')).catch(() => null)
    const comm = model?.comm
    const over = model?.comm_live === false || comm?.jsServicesComm?.isDisposed || comm?.kernel?.isDisposed
    this.live(!over)
  }

  watch() {
    if (this.shown.size) this.watching ??= setInterval(() => void this.check(), CHECK_MS)
    else this.watching = clearInterval(this.watching)
  }

  live(live) {
    for (const one of this.shown) if (one.lost === live) one.gone(!live)
  }
}

class Card {
  constructor(el, page) {
    this.page = page
    this.host = make('div')
    // Keep JupyterLab's shortcuts from acting on its cells while the user types here.
    this.host.dataset.lmSuppressShortcuts = 'true'
    const shadow = this.host.attachShadow({ mode: 'open' })
    shadow.adoptedStyleSheets = [sheet]
    this.parts = new Map()
    this.controls = new Map()
    this.lost = false
    this.card = make('article.card')
    this.head = make('header')
    this.events = make('div')
    this.settings = make('div')
    this.streams = make('div.streams')
    this.about = make('details')
    this.message = make('p.message', { role: 'status', hidden: true })
    this.card.append(this.head, make('div.body', {}, this.events, this.settings), this.streams, this.message, this.about)
    shadow.append(this.card)
    el.append(this.host)
    this.makeHead()
    this.makeSettings()
    this.themes = new MutationObserver(() => this.paint())
    this.themes.observe(document.body, { attributes: true, attributeFilter: ['class', 'data-jp-theme-light', 'data-vscode-theme-kind'] })
    this.system = matchMedia('(prefers-color-scheme: dark)')
    this.system.addEventListener('change', (this.onSystem = () => this.paint()))
    this.paint()
    this.draw(page.info)
  }

  paint() {
    const { dataset, classList } = document.body
    const kind = dataset.vscodeThemeKind ?? [...classList].find((name) => name.startsWith('vscode-')) ?? ''
    const dark = dataset.jpThemeLight ? dataset.jpThemeLight === 'false' : kind ? /dark|(?<!light-)high-contrast$/.test(kind) : this.system.matches
    this.card.dataset.theme = dark ? 'dark' : 'light'
  }

  /** Draw a part again only if its data changed, so that elements keep their hover, focus and drag. */
  part(name, data, draw) {
    const text = JSON.stringify(data)
    if (this.parts.get(name) === text) return
    this.parts.set(name, text)
    draw(data)
  }

  draw(info) {
    this.info = info
    const off = !info.takes_commands || this.lost
    this.card.setAttribute('aria-label', `Run ${info.name}`)
    this.name.textContent = info.name
    this.state.dataset.state = info.state
    this.state.textContent = info.state
    const most = [...info.events].sort((a, b) => b.n - a.n)[0]
    const facts = [most?.n ? `${most.name} ${count(most.n)}` : '', info.age_s ? duration(info.age_s) : '', info.n_clients > 1 ? `${info.n_clients} clients` : '', info.n_pending && !info.ended ? `${info.n_pending} ${info.n_pending === 1 ? 'command pending' : 'commands pending'}` : '']
    this.summary.textContent = facts.filter(Boolean).join(' · ')
    this.pause.textContent = info.state === 'paused' ? 'Resume' : 'Pause'
    this.pause.classList.toggle('main', info.state === 'paused')
    for (const button of [this.pause, this.stop]) button.disabled = off || info.state === 'stopping'
    this.commands.hidden = info.ended || (!info.takes_commands && !info.problem)
    this.part('events', info.events, () => this.drawEvents(info.events))
    this.part('controls', [info.controls, off], () => this.drawControls(info.controls, off))
    this.part('actions', [info.actions, off], () => this.drawActions(info.actions, off))
    this.part('streams', info.streams, () => this.drawStreams(info.streams))
    this.part('about', [info.id, info.host, info.pid, info.directory, info.config], () => this.drawAbout(info))
    this.settings.hidden = !info.controls.length && !info.actions.length
    this.events.classList.toggle('alone', this.settings.hidden)
    if (info.problem !== this.problem) {
      this.problem = info.problem
      this.show(info.problem, info.ended ? '' : 'bad')
    }
  }

  makeHead() {
    this.name = make('h2')
    this.state = make('span.state', { role: 'status' })
    this.summary = make('span.muted')
    this.pause = make('button', { type: 'button', onclick: () => this.command({ do: this.info.state === 'paused' ? 'resume' : 'pause' }) })
    this.stop = make('button.bad', { type: 'button', onclick: () => this.confirmStop() }, 'Stop')
    this.confirm = make('button.confirm', { type: 'button', hidden: true, onclick: () => (this.cancelStop(), this.command({ do: 'stop' })) }, 'Stop this run')
    this.cancel = make('button', { type: 'button', hidden: true, onclick: () => this.cancelStop() }, 'Let it run')
    this.commands = make('span.commands', {}, this.pause, this.stop, this.cancel, this.confirm)
    this.head.append(this.name, this.state, this.summary, this.commands)
  }

  confirmStop() {
    for (const one of [this.confirm, this.cancel]) one.hidden = false
    this.stop.hidden = this.pause.hidden = true
    this.cancel.focus()
    this.timer = setTimeout(() => this.cancelStop(), CONFIRM_MS)
  }

  cancelStop() {
    clearTimeout(this.timer)
    for (const one of [this.confirm, this.cancel]) one.hidden = true
    this.stop.hidden = this.pause.hidden = false
  }

  drawEvents(events) {
    const list = events.flatMap((event) => {
      const rate = event.rate > 0 && this.info.state === 'running' ? ` · ${short(+event.rate.toPrecision(3))}/s` : ''
      const snapshot = event.snapshot ? ' · snapshot' : ''
      return [
        make('div.event', {}, make('b', {}, event.name), make('span.count.muted', {}, `${count(event.n)}${rate}${snapshot}`)),
        event.note ? make('p.note', {}, event.note) : '',
        make('ul', {}, ...event.observables.map((one) => make('li', {}, this.observable(event, one)))),
        event.n_more ? make('p.note', {}, `and ${count(event.n_more)} more`) : '',
      ]
    })
    const focused = this.host.shadowRoot.activeElement?.dataset.query
    this.events.replaceChildren(make('h3', {}, 'Events'), ...(list.length ? list.filter(Boolean) : [make('p.note', {}, 'No events yet')]))
    if (focused) [...this.events.querySelectorAll('.observable')].find(({ dataset }) => dataset.query === focused)?.focus()
  }

  observable(event, { name, type, example, fields, n_fields, query }) {
    const value = type === 'float' && Number.isFinite(Number(example)) ? short(Number(example)) : example
    const parts = fields.slice(0, 6).map(([path, kind]) => `${path}: ${kind}`).join(', ')
    const shown = [type, value && `= ${value}`, parts && `· ${parts}`].filter(Boolean).join(' ')
    const inside = fields.map(([path, kind]) => `${path}: ${kind}`).join('\n') + (n_fields > fields.length ? `\n… ${count(n_fields)} in all` : '')
    const hint = make('span.hint', {}, 'copy query')
    const code = `run.stream(${JSON.stringify(query)})`
    const made = make('button.observable', { type: 'button', title: [code, inside].filter(Boolean).join('\n\n'), disabled: !query }, make('span.name', {}, name), make('span.type', {}, shown), hint)
    made.dataset.query = query
    made.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(code)
        hint.textContent = 'copied'
        made.classList.add('copied')
      } catch {
        this.show(code, 'done') // no clipboard: the user can select and copy the text
      }
    })
    return made
  }

  makeSettings() {
    this.list = make('div')
    this.controlsPart = make('section', {}, make('h3', {}, 'Controls'), this.list)
    this.actions = make('div.actions')
    this.actionsPart = make('section', {}, make('h3', {}, 'Actions'), this.actions)
    this.settings.append(this.controlsPart, this.actionsPart)
  }

  drawControls(controls, off) {
    this.controlsPart.hidden = !controls.length
    const drawn = new Map()
    for (const control of controls) {
      const shape = JSON.stringify({ ...control, value: typeof control.value })
      const before = this.controls.get(control.name)
      const one = before?.shape === shape ? before : this.control(control, shape)
      one.now = control
      one.set(control.value, off)
      drawn.set(control.name, one)
    }
    const rows = [...drawn.values()].map(({ row }) => row)
    if (rows.some((row, i) => this.list.children[i] !== row) || this.list.children.length !== rows.length) this.list.replaceChildren(...rows)
    this.controls = drawn
  }

  control(control, shape) {
    const { name, type, choices, min, max } = control
    const result = make('div.result', { role: 'status' })
    const field = make('div.field')
    const row = make('div.control', { title: `Declared at ${control.where}` }, make('label', {}, name, make('span.bounds', {}, boundsOf(control))), field, result)
    const one = { row, shape, now: control, pending: 0, held: false }
    const send = (value) => {
      one.pending++
      one.wanted = value
      result.dataset.kind = 'wait'
      result.textContent = 'pending until the next event …'
      this.page.command({ do: 'set', name, value }, ({ ok, text }) => {
        one.pending--
        result.dataset.kind = ok ? 'done' : 'bad'
        result.textContent = text
        if (!one.pending && !ok) one.set(one.now.value, false)
      })
    }
    const label = { 'aria-label': name }
    const enter = ({ value }) => {
      if (!one.held) return
      one.held = false
      if (type === 'str' || value !== '') send(type === 'str' ? value : Number(value))
    }
    // Do not overwrite what the user is typing.
    const typed = {
      oninput: () => (one.held = true),
      onkeydown: (event) => event.key === 'Enter' && (event.preventDefault(), enter(event.target)),
      onchange: (event) => enter(event.target),
      onblur: () => ((one.held = false), one.show(one.pending ? one.wanted : one.now.value)),
    }
    if (choices?.length) {
      const select = make('select', { ...label, onchange: () => send(Number(select.value)) }, ...choices.map((choice, i) => make('option', { value: String(i) }, short(choice))))
      field.append(select)
      one.show = (value) => (select.value = String(choices.indexOf(value)))
    } else if (type === 'bool') {
      const button = make('button.switch', { ...label, type: 'button', role: 'switch', onclick: () => (one.show(button.ariaChecked !== 'true'), send(button.ariaChecked === 'true')) })
      field.append(button)
      one.show = (value) => (button.ariaChecked = String(Boolean(value)))
    } else if (type === 'str') {
      const input = make('input', { ...label, type: 'text', ...typed })
      field.append(input)
      one.show = (value) => (input.value = value)
    } else {
      const input = make('input', { ...label, type: 'number', step: type === 'int' ? '1' : 'any', ...typed })
      const slides = min !== null && max !== null
      const slider = make('input', { 'aria-label': `${name}, slider`, type: 'range', min: '0', max: '1000', step: '1' })
      slider.addEventListener('input', () => ((one.held = true), (input.value = short(valueAt(one.now, Number(slider.value))))))
      slider.addEventListener('blur', typed.onblur)
      slider.addEventListener('change', () => ((one.held = false), send(valueAt(one.now, Number(slider.value)))))
      field.append(...(slides ? [slider] : []), input)
      one.show = (value) => {
        input.value = short(value)
        if (slides) slider.value = String(positionOf(one.now, value))
        slider.ariaValueText = short(value)
      }
    }
    const fields = [...field.children]
    one.set = (value, off) => {
      for (const each of fields) each.disabled = off
      if (!one.held && !one.pending) one.show(value)
    }
    return one
  }

  drawActions(actions, off) {
    this.actionsPart.hidden = !actions.length
    this.actions.replaceChildren(...actions.map(({ name, doc, where }) => make('button', { type: 'button', disabled: off, title: [doc, `Declared at ${where}`].filter(Boolean).join('\n'), onclick: () => this.command({ do: 'call', name }) }, name)))
  }

  drawStreams(streams) {
    this.streams.hidden = !streams.length
    const rows = streams.map(({ query, clients, n_records, n_events, n_skipped, n_dropped, n_errors, last_error, stride, spent_s, recorded }) => {
      const lossy = [[n_skipped, 'skipped'], [n_dropped, 'dropped'], [n_errors, 'errors']].filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`)
      const cost = n_events ? `${short(+((1e6 * spent_s) / n_events).toPrecision(3))} µs per event${stride > 1 ? `, one in ${stride}` : ''}` : ''
      const readers = [recorded ? 'recorded' : '', clients.length === 1 ? '1 client' : clients.length ? `${clients.length} clients` : ''].filter(Boolean).join(', ')
      return make('tr', { title: [...clients, last_error].filter(Boolean).join('\n') }, make('td', {}, query), make('td', {}, `${count(n_records)} records`), make(lossy.length ? 'td.lossy' : 'td', {}, lossy.join(', ')), make('td', {}, cost), make('td', {}, readers))
    })
    this.streams.replaceChildren(make('h3', {}, this.info.ended ? 'Recorded series' : 'Queries'), make('table', {}, make('tbody', {}, ...rows)))
  }

  drawAbout({ id, host, pid, directory, config }) {
    const facts = [['id', id], ['host', host], ['process', pid], ['directory', directory], ...config].filter(([, value]) => value !== '' && value !== null && value !== 0)
    this.about.replaceChildren(make('summary', {}, config.length ? 'Configuration and location' : 'Location'), make('dl', {}, ...facts.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, String(value))])))
  }

  command(wanted) {
    this.show(`${wanted.name ?? wanted.do}: pending until the run's next event …`, 'wait')
    this.page.command(wanted, ({ ok, text }) => this.show(text, ok ? 'done' : 'bad'))
  }

  show(text, kind) {
    this.message.hidden = !text
    this.message.textContent = text
    this.message.dataset.kind = kind
  }

  gone(lost) {
    this.lost = lost
    this.parts.clear()
    this.draw(this.info)
    if (lost) {
      this.commands.hidden = true
      this.show('The kernel is gone. This is the last state the run reported.', 'wait')
    } else this.show('', '')
  }

  end() {
    clearTimeout(this.timer)
    this.themes.disconnect()
    this.system.removeEventListener('change', this.onSystem)
    this.host.remove()
  }
}

export default () => ({
  initialize({ model }) {
    pages.set(model.get('key'), new Page(model))
  },
  render({ model, el }) {
    const page = pages.get(model.get('key')) ?? new Page(model)
    pages.set(model.get('key'), page)
    const card = new Card(el, page)
    page.shown.add(card)
    page.watch()
    page.announce()
    return () => {
      page.shown.delete(card)
      card.end()
      page.watch()
      if (!page.shown.size) page.send({ type: 'gone' })
    }
  },
})
