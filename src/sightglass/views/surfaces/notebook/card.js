// The card of a run in a notebook: what it offers, what it is asked, and how to act on it. Texts are only ever set as texts.

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
.reins { margin-left: auto; display: flex; flex-wrap: wrap; align-items: center; gap: 8px; }
button { font: inherit; font-weight: 550; height: 28px; padding: 0 12px; color: var(--text); background: var(--surface); border: 1px solid var(--line-strong); border-radius: 6px; cursor: pointer; }
button:hover:not(:disabled) { background: var(--sunken); }
button:disabled { opacity: 0.5; cursor: default; }
button.main { color: var(--on-accent); background: var(--accent); border-color: var(--accent); }
button.bad { color: var(--bad); border-color: color-mix(in srgb, var(--bad) 45%, var(--surface)); }
button.bad:hover:not(:disabled) { background: var(--bad-soft); }
button.sure { color: #fff; background: #b3261e; border-color: #b3261e; }
button.sure:hover:not(:disabled) { background: #8f1e18; }
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
.offered { display: grid; grid-template-columns: minmax(70px, auto) minmax(0, 1fr) auto; gap: 0 10px; align-items: center; width: 100%; min-height: 24px; height: auto; padding: 2px 8px; border: 0; background: none; text-align: left; font-weight: 400; border-radius: 5px; }
.offered:hover:not(:disabled) { background: var(--accent-soft); }
.offered .name { font: 500 12px/1.4 var(--mono); overflow-wrap: anywhere; max-width: 30ch; }
.offered .type { font: 11.5px/1.4 var(--mono); color: var(--muted); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.offered .hint { font-size: 11.5px; color: var(--accent-text); opacity: 0; white-space: nowrap; }
.offered:hover .hint, .offered:focus-visible .hint, .offered.copied .hint { opacity: 1; }
.offered.copied .hint { color: var(--good); }
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
.said { grid-column: 1 / -1; font-size: 11.5px; color: var(--muted); overflow-wrap: anywhere; min-height: 0; }
.said[data-kind='done'] { color: var(--good); }
.said[data-kind='wait'] { color: var(--warn); }
.said[data-kind='bad'] { color: var(--bad); }
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
.word { margin: 0; padding: 8px 14px; border-top: 1px solid var(--line); font-size: 12px; overflow-wrap: anywhere; white-space: pre-wrap; }
.word[data-kind='done'] { color: var(--good); }
.word[data-kind='wait'] { color: var(--warn); }
.word[data-kind='bad'] { color: var(--bad); background: var(--bad-soft); }
`

const SURE_MS = 6000
const LOOK_MS = 2000
const sheet = new CSSStyleSheet()
sheet.replaceSync(CSS)
const desks = new Map()

/** Make an element: a tag with classes, its properties, and what is in it. Texts stay texts. */
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

function lasted(seconds) {
  const s = Math.floor(seconds)
  const two = (n) => String(n).padStart(2, '0')
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`
}

/** A slider over several powers of ten moves in powers of ten. */
const logarithmic = ({ type, min, max, value }) => type !== 'int' && min >= 0 && max / (min || Math.min(max / 1e6, value || max)) >= 1000
const lowest = ({ min, max }) => min || max / 1e6

function placeOf(control, value) {
  const { min, max } = control
  if (!logarithmic(control)) return (1000 * (value - min)) / (max - min || 1)
  return value <= lowest(control) ? 0 : 1000 * (Math.log(value / lowest(control)) / Math.log(max / lowest(control)))
}

function valueAt(control, place) {
  const { type, min, max } = control
  if (place <= 0) return min
  if (place >= 1000) return max
  const exact = logarithmic(control) ? lowest(control) * (max / lowest(control)) ** (place / 1000) : min + ((max - min) * place) / 1000
  return type === 'int' ? Math.round(exact) : Number(exact.toPrecision(3))
}

function boundsOf({ type, min, max, choices }) {
  if (choices?.length || type === 'bool') return ''
  if (min !== null && max !== null) return `${type}, ${short(min)} to ${short(max)}`
  return min !== null ? `${type}, at least ${short(min)}` : max !== null ? `${type}, at most ${short(max)}` : type
}

class Desk {
  constructor(model) {
    this.model = model
    this.page = crypto.randomUUID?.() ?? String(Math.random()).slice(2)
    this.shown = new Set()
    this.told = model.get('options').told
    this.acts = new Map()
    this.n_acts = 0
    model.on('msg:custom', (content) => this.hear(content))
    model.on('comm_live_update', () => void this.look())
    document.addEventListener('visibilitychange', () => this.shown.size && (document.hidden ? this.say({ type: 'gone' }) : this.announce()))
    addEventListener('pagehide', () => this.shown.size && this.say({ type: 'gone' }))
  }

  say(message) {
    try {
      this.model.send({ ...message, page: this.page })
    } catch {
      this.live(false)
    }
  }

  /** Again and again until it is heard: the first words may wait in the kernel behind a cell that is running. */
  announce(pause_ms = 250) {
    clearTimeout(this.again)
    if (!this.shown.size || document.hidden) return
    this.say({ type: 'ready' })
    this.again = setTimeout(() => this.announce(Math.min(2 * pause_ms, 15_000)), pause_ms)
  }

  hear(content) {
    if (content?.type === 'told') {
      clearTimeout(this.again)
      this.rates(content.told)
      this.told = content.told
      for (const one of this.shown) one.draw(content.told)
      if (this.shown.size) requestAnimationFrame(() => this.say({ type: 'ack', n: content.n }))
    } else if (content?.type === 'done' && content.to === this.page) {
      this.acts.get(content.act)?.(content)
      this.acts.delete(content.act)
    }
  }

  /** How often events happen, from one telling to the next. */
  rates(told) {
    const took = told.age_s - this.told.age_s
    if (!(took > 0)) return
    for (const event of told.events) {
      const before = this.told.events.find(({ name }) => name === event.name)
      if (before) event.rate = (event.n - before.n) / took
    }
  }

  act(wanted, done) {
    const act = ++this.n_acts
    this.acts.set(act, done)
    this.say({ type: 'act', act, ...wanted })
  }

  /** Whether the kernel lives. Not every front end says so when it ends: it is looked at now and then, too. */
  async look() {
    const model = await this.model.widget_manager.get_model(this.model.get('key')).catch(() => null)
    const comm = model?.comm
    const over = model?.comm_live === false || comm?.jsServicesComm?.isDisposed || comm?.kernel?.isDisposed
    this.live(!over)
  }

  watch() {
    if (this.shown.size) this.watching ??= setInterval(() => void this.look(), LOOK_MS)
    else this.watching = clearInterval(this.watching)
  }

  live(live) {
    for (const one of this.shown) if (one.lost === live) one.gone(!live)
  }
}

class Card {
  constructor(el, desk) {
    this.desk = desk
    this.host = make('div')
    // JupyterLab's own keys are not to act on its cells while something is typed here.
    this.host.dataset.lmSuppressShortcuts = 'true'
    const shadow = this.host.attachShadow({ mode: 'open' })
    shadow.adoptedStyleSheets = [sheet]
    this.parts = new Map()
    this.controls = new Map()
    this.lost = false
    this.card = make('article.card')
    this.head = make('header')
    this.events = make('div')
    this.knobs = make('div')
    this.streams = make('div.streams')
    this.about = make('details')
    this.word = make('p.word', { role: 'status', hidden: true })
    this.card.append(this.head, make('div.body', {}, this.events, this.knobs), this.streams, this.word, this.about)
    shadow.append(this.card)
    el.append(this.host)
    this.makeHead()
    this.makeKnobs()
    this.themes = new MutationObserver(() => this.paint())
    this.themes.observe(document.body, { attributes: true, attributeFilter: ['class', 'data-jp-theme-light', 'data-vscode-theme-kind'] })
    this.system = matchMedia('(prefers-color-scheme: dark)')
    this.system.addEventListener('change', (this.onSystem = () => this.paint()))
    this.paint()
    this.draw(desk.told)
  }

  paint() {
    const { dataset, classList } = document.body
    const kind = dataset.vscodeThemeKind ?? [...classList].find((name) => name.startsWith('vscode-')) ?? ''
    const dark = dataset.jpThemeLight ? dataset.jpThemeLight === 'false' : kind ? /dark|(?<!light-)high-contrast$/.test(kind) : this.system.matches
    this.card.dataset.theme = dark ? 'dark' : 'light'
  }

  /** Make a part anew only where something in it changed: what is hovered, focused or dragged stays. */
  part(name, data, draw) {
    const text = JSON.stringify(data)
    if (this.parts.get(name) === text) return
    this.parts.set(name, text)
    draw(data)
  }

  draw(told) {
    this.told = told
    const off = !told.acts || this.lost
    this.card.setAttribute('aria-label', `Run ${told.name}`)
    this.name.textContent = told.name
    this.state.dataset.state = told.state
    this.state.textContent = told.state
    const most = [...told.events].sort((a, b) => b.n - a.n)[0]
    const facts = [most?.n ? `${most.name} ${count(most.n)}` : '', told.age_s ? lasted(told.age_s) : '', told.n_clients > 1 ? `${told.n_clients} clients` : '', told.n_waiting && !told.over ? `${told.n_waiting} ${told.n_waiting === 1 ? 'act waits' : 'acts wait'}` : '']
    this.facts.textContent = facts.filter(Boolean).join(' · ')
    this.pause.textContent = told.state === 'paused' ? 'Resume' : 'Pause'
    this.pause.classList.toggle('main', told.state === 'paused')
    for (const button of [this.pause, this.stop]) button.disabled = off || told.state === 'stopping'
    this.reins.hidden = told.over || (!told.acts && !told.problem)
    this.part('events', told.events, () => this.drawEvents(told.events))
    this.part('controls', [told.controls, off], () => this.drawControls(told.controls, off))
    this.part('actions', [told.actions, off], () => this.drawActions(told.actions, off))
    this.part('streams', told.streams, () => this.drawStreams(told.streams))
    this.part('about', [told.id, told.host, told.pid, told.directory, told.config], () => this.drawAbout(told))
    this.knobs.hidden = !told.controls.length && !told.actions.length
    this.events.classList.toggle('alone', this.knobs.hidden)
    if (told.problem !== this.problem) {
      this.problem = told.problem
      this.tell(told.problem, told.over ? '' : 'bad')
    }
  }

  makeHead() {
    this.name = make('h2')
    this.state = make('span.state', { role: 'status' })
    this.facts = make('span.muted')
    this.pause = make('button', { type: 'button', onclick: () => this.act({ do: this.told.state === 'paused' ? 'resume' : 'pause' }) })
    this.stop = make('button.bad', { type: 'button', onclick: () => this.ask() }, 'Stop')
    this.sure = make('button.sure', { type: 'button', hidden: true, onclick: () => (this.calm(), this.act({ do: 'stop' })) }, 'Stop this run')
    this.rather = make('button', { type: 'button', hidden: true, onclick: () => this.calm() }, 'Let it run')
    this.reins = make('span.reins', {}, this.pause, this.stop, this.rather, this.sure)
    this.head.append(this.name, this.state, this.facts, this.reins)
  }

  ask() {
    for (const one of [this.sure, this.rather]) one.hidden = false
    this.stop.hidden = this.pause.hidden = true
    this.rather.focus()
    this.timer = setTimeout(() => this.calm(), SURE_MS)
  }

  calm() {
    clearTimeout(this.timer)
    for (const one of [this.sure, this.rather]) one.hidden = true
    this.stop.hidden = this.pause.hidden = false
  }

  drawEvents(events) {
    const list = events.flatMap((event) => {
      const rate = event.rate > 0 && this.told.state === 'running' ? ` · ${short(+event.rate.toPrecision(3))}/s` : ''
      const kept = event.kept ? ' · kept' : ''
      return [
        make('div.event', {}, make('b', {}, event.name), make('span.count.muted', {}, `${count(event.n)}${rate}${kept}`)),
        event.note ? make('p.note', {}, event.note) : '',
        make('ul', {}, ...event.observables.map((one) => make('li', {}, this.offered(event, one)))),
        event.n_more ? make('p.note', {}, `and ${count(event.n_more)} more`) : '',
      ]
    })
    const focused = this.host.shadowRoot.activeElement?.dataset.query
    this.events.replaceChildren(make('h3', {}, 'Events'), ...(list.length ? list.filter(Boolean) : [make('p.note', {}, 'Nothing has happened yet')]))
    if (focused) [...this.events.querySelectorAll('.offered')].find(({ dataset }) => dataset.query === focused)?.focus()
  }

  offered(event, { name, type, example, fields, n_fields, query }) {
    const said = type === 'float' && Number.isFinite(Number(example)) ? short(Number(example)) : example
    const parts = fields.slice(0, 6).map(([path, kind]) => `${path}: ${kind}`).join(', ')
    const shown = [type, said && `= ${said}`, parts && `· ${parts}`].filter(Boolean).join(' ')
    const inside = fields.map(([path, kind]) => `${path}: ${kind}`).join('\n') + (n_fields > fields.length ? `\n… ${count(n_fields)} in all` : '')
    const hint = make('span.hint', {}, 'copy query')
    const code = `run.stream(${JSON.stringify(query)})`
    const made = make('button.offered', { type: 'button', title: [code, inside].filter(Boolean).join('\n\n'), disabled: !query }, make('span.name', {}, name), make('span.type', {}, shown), hint)
    made.dataset.query = query
    made.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(code)
        hint.textContent = 'copied'
        made.classList.add('copied')
      } catch {
        this.tell(code, 'done') // no clipboard here: it can be marked and copied
      }
    })
    return made
  }

  makeKnobs() {
    this.list = make('div')
    this.controlsPart = make('section', {}, make('h3', {}, 'Controls'), this.list)
    this.actions = make('div.actions')
    this.actionsPart = make('section', {}, make('h3', {}, 'Actions'), this.actions)
    this.knobs.append(this.controlsPart, this.actionsPart)
  }

  drawControls(controls, off) {
    this.controlsPart.hidden = !controls.length
    const kept = new Map()
    for (const control of controls) {
      const shape = JSON.stringify({ ...control, value: typeof control.value })
      const before = this.controls.get(control.name)
      const one = before?.shape === shape ? before : this.control(control, shape)
      one.now = control
      one.set(control.value, off)
      kept.set(control.name, one)
    }
    const rows = [...kept.values()].map(({ row }) => row)
    if (rows.some((row, i) => this.list.children[i] !== row) || this.list.children.length !== rows.length) this.list.replaceChildren(...rows)
    this.controls = kept
  }

  control(control, shape) {
    const { name, type, choices, min, max } = control
    const said = make('div.said', { role: 'status' })
    const field = make('div.field')
    const row = make('div.control', { title: `Declared at ${control.where}` }, make('label', {}, name, make('span.bounds', {}, boundsOf(control))), field, said)
    const one = { row, shape, now: control, pending: 0, held: false }
    const send = (value) => {
      one.pending++
      one.wanted = value
      said.dataset.kind = 'wait'
      said.textContent = 'waits for the next event …'
      this.desk.act({ do: 'set', name, value }, ({ ok, text }) => {
        one.pending--
        said.dataset.kind = ok ? 'done' : 'bad'
        said.textContent = text
        if (!one.pending && !ok) one.set(one.now.value, false)
      })
    }
    const label = { 'aria-label': name }
    const enter = ({ value }) => {
      if (!one.held) return
      one.held = false
      if (type === 'str' || value !== '') send(type === 'str' ? value : Number(value))
    }
    // What is being typed is not written over.
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
        if (slides) slider.value = String(placeOf(one.now, value))
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
    this.actions.replaceChildren(...actions.map(({ name, doc, where }) => make('button', { type: 'button', disabled: off, title: [doc, `Declared at ${where}`].filter(Boolean).join('\n'), onclick: () => this.act({ do: 'call', name }) }, name)))
  }

  drawStreams(streams) {
    this.streams.hidden = !streams.length
    const rows = streams.map(({ query, clients, n_records, n_events, n_skipped, n_dropped, n_errors, last_error, stride, spent_s, kept }) => {
      const lossy = [[n_skipped, 'skipped'], [n_dropped, 'dropped'], [n_errors, 'errors']].filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`)
      const cost = n_events ? `${short(+((1e6 * spent_s) / n_events).toPrecision(3))} µs an event${stride > 1 ? `, one in ${stride}` : ''}` : ''
      const who = [kept ? 'recorded' : '', clients.length === 1 ? '1 client' : clients.length ? `${clients.length} clients` : ''].filter(Boolean).join(', ')
      return make('tr', { title: [...clients, last_error].filter(Boolean).join('\n') }, make('td', {}, query), make('td', {}, `${count(n_records)} records`), make(lossy.length ? 'td.lossy' : 'td', {}, lossy.join(', ')), make('td', {}, cost), make('td', {}, who))
    })
    this.streams.replaceChildren(make('h3', {}, this.told.over ? 'What was recorded' : 'What it is asked'), make('table', {}, make('tbody', {}, ...rows)))
  }

  drawAbout({ id, host, pid, directory, config }) {
    const facts = [['id', id], ['host', host], ['process', pid], ['directory', directory], ...config].filter(([, value]) => value !== '' && value !== null && value !== 0)
    this.about.replaceChildren(make('summary', {}, config.length ? 'Configuration and place' : 'Place'), make('dl', {}, ...facts.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, String(value))])))
  }

  act(wanted) {
    this.tell(`${wanted.name ?? wanted.do}: waits for the run's next event …`, 'wait')
    this.desk.act(wanted, ({ ok, text }) => this.tell(text, ok ? 'done' : 'bad'))
  }

  tell(text, kind) {
    this.word.hidden = !text
    this.word.textContent = text
    this.word.dataset.kind = kind
  }

  gone(lost) {
    this.lost = lost
    this.parts.clear()
    this.draw(this.told)
    if (lost) {
      this.reins.hidden = true
      this.tell('The kernel is gone: this is what the run told last.', 'wait')
    } else this.tell('', '')
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
    desks.set(model.get('key'), new Desk(model))
  },
  render({ model, el }) {
    const desk = desks.get(model.get('key')) ?? new Desk(model)
    desks.set(model.get('key'), desk)
    const card = new Card(el, desk)
    desk.shown.add(card)
    desk.watch()
    desk.announce()
    return () => {
      desk.shown.delete(card)
      card.end()
      desk.watch()
      if (!desk.shown.size) desk.say({ type: 'gone' })
    }
  },
})
