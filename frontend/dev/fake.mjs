// A server of made-up runs, for work on the page without a training: node dev/fake.mjs [--runs 24] [--tags 40] [--port 8899]
// It speaks the page's part of the API, under the same headers as the real one.
import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { extname, join, normalize } from 'node:path'
import { parseArgs } from 'node:util'
import { encode } from '@msgpack/msgpack'
import { WebSocketServer } from 'ws'
import { minMax, randomOf, valueAt } from './data.mjs'

const { values: options } = parseArgs({
  options: { runs: { type: 'string', default: '24' }, tags: { type: 'string', default: '40' }, port: { type: 'string', default: '8899' } },
})
const [N_RUNS, N_TAGS] = [Number(options.runs), Number(options.tags)]
const ROOT = new URL('../../src/sightglass/serve/static', import.meta.url).pathname
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; connect-src 'self'; font-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }
const START = Date.now() / 1000

const lrs = [0.001, 0.003, 0.01, 0.03]
const names = ['mnist', 'resnet-50', 'transformer-base', 'gru-copy-task', 'diffusion-small-with-a-rather-long-name']
const runs = Array.from({ length: N_RUNS }, (_, i) => {
  const live = i < Math.min(3, N_RUNS)
  const started = START - i * 5400 - 2400
  const state = live ? (i === 2 ? 'paused' : 'running') : (['ended', 'ended', 'ended', 'failed', 'died', 'ended'][i % 6] ?? 'ended')
  return {
    key: `run-${i}`,
    id: (0x9a31 * (i + 7)).toString(16).padStart(8, '0'),
    name: `${names[i % names.length]}${i >= 5 ? `-${i}` : ''}`,
    state,
    live,
    source: i % 7 === 5 ? 'tensorboard' : i % 7 === 6 ? 'mindspore' : 'sightglass',
    directory: `/home/ada/runs/${names[i % names.length]}-${i}`,
    host: i % 3 ? 'node-17' : 'workstation',
    started,
    ended: live ? null : started + 600 + ((i * 977) % 4000),
    last_step: live ? 0 : 10_000 + ((i * 313) % 5000),
    config: { lr: lrs[i % 4], seed: Math.floor(i / 4), batch_size: 32 * 2 ** (i % 3), optimizer: { name: i % 2 ? 'adam' : 'sgd', momentum: 0.9 } },
    problem: i === 8 ? "Frame 4,117 of segment 0 is damaged at offset 88,121,090: its checksum does not match. 1 record is missing." : null,
  }
})
const stepsOf = (run) => (run.live ? Math.floor(2000 + (Date.now() / 1000 - START) * (run.state === 'paused' ? 0 : 10)) : run.last_step)
const shown = (run) => ({ ...run, last_step: stepsOf(run) })

const tags = ['train/loss', 'train/accuracy', 'train/grad_norm', 'val/loss', 'val/accuracy', 'val/perplexity', 'lr', 'batch.loss', 'batch.abs(grads).mean(every=100)', 'odd/nan_and_inf', 'odd/spikes', 'odd/negative', 'odd/constant']
for (let i = 0; tags.length < N_TAGS; i++) tags.push(`layer${String(Math.floor(i / 12)).padStart(3, '0')}/weights_${i % 12}`)

function series({ run: key, tag, x, from = -Infinity, to = Infinity, points = 1000 }) {
  const run = runs.find((one) => one.key === key)
  if (!run) return { run: key, tag, error: { type: 'UnknownNameError', message: `Unknown run '${key}'.` } }
  if (!tags.includes(tag)) return { run: key, tag, error: { type: 'UnknownNameError', message: `Unknown tag '${tag}'.` } }
  const n = Math.floor(stepsOf(run) / (tag.startsWith('val') ? 50 : 1))
  const every = tag.startsWith('val') ? 50 : 1
  const pace = run.live ? 0.1 : (run.ended - run.started) / run.last_step
  const columns = { x: [], y: [], wall: [], step: [] }
  for (let i = 0; i <= n; i++) {
    const step = i * every
    const wall = run.live ? START - 200 + step * pace : run.started + step * pace
    const place = x === 'wall' ? wall : x === 'relative' ? step * pace : step
    if (place < from || place > to) continue
    columns.x.push(place)
    columns.y.push(valueAt(tag, run, step))
    columns.wall.push(wall)
    columns.step.push(step)
  }
  const kept = minMax(columns.y, points)
  const bytes = (column) => new Uint8Array(Float64Array.from(kept, (i) => column[i]).buffer)
  return { run: key, tag, n: columns.x.length, thinned: kept.length < columns.x.length, x: bytes(columns.x), y: bytes(columns.y), wall: bytes(columns.wall), step: bytes(columns.step) }
}

const controls = {
  lr: { type: 'float', value: 0.01, min: 0, max: 1, choices: null, where: 'train.py:12' },
  warmup: { type: 'int', value: 500, min: 0, max: 10000, choices: null, where: 'train.py:13' },
  clip: { type: 'float', value: 1.5, min: 0, max: null, choices: null, where: 'train.py:14' },
  augment: { type: 'bool', value: true, min: null, max: null, choices: null, where: 'train.py:15' },
  schedule: { type: 'str', value: 'cosine', min: null, max: null, choices: ['constant', 'cosine', 'linear'], where: 'train.py:16' },
}
const history = [
  { kind: 'set', name: 'lr', value: 0.01, step: 800, wall_time: START - 120 },
  { kind: 'call', name: 'checkpoint', step: 1400, wall_time: START - 60 },
]
const streams = [
  { stream: 1, query: 'batch.loss', tag: 'batch.loss', clients: ['page', 'notebook'], n_records: 2400, n_events: 2400, n_skipped: 0, n_dropped: 0, n_errors: 0, last_error: '', stride: 1, spent_s: 0.031, kept: true },
  { stream: 2, query: 'batch.abs(grads["dense"]).mean(every=100)', tag: 'm', clients: ['page'], n_records: 24, n_events: 2400, n_skipped: 120, n_dropped: 0, n_errors: 0, last_error: '', stride: 2, spent_s: 0.8 },
]
const describe = (run) => ({
  name: run.name, id: run.id, pid: 4711, host: run.host, state: run.state, wall_time: Date.now() / 1000, started: run.started, config: run.config, directory: run.directory,
  events: {
    batch: { origin: 'observe', n_events: stepsOf(run), kept: false, note: '', observables: {
      loss: { type: 'float', example: '0.213', fields: {} },
      grads: { type: 'dict', example: '', fields: { dense: 'float32[784,128]', bias: 'float32[128]', head: 'float32[128,10]' } },
      params: { type: 'dict', example: '', fields: { dense: 'float32[784,128]', bias: 'float32[128]' } },
      y: { type: 'int64[64]', example: '', fields: {} },
      pred: { type: 'float32[64,10]', example: '', fields: {} },
    } },
    epoch: { origin: 'observe', n_events: 12, kept: false, note: '', observables: { epoch: { type: 'int', example: '11', fields: {} }, accuracy: { type: 'float', example: '0.973', fields: {} } } },
  },
  controls, actions: { checkpoint: { doc: 'Save the parameters now.', where: 'train.py:20' }, shuffle: { doc: 'Shuffle the data anew.', where: 'train.py:24' } },
  functions: { confusion: 'Confusion matrix of labels and predictions.' }, streams, n_clients: 2, n_pending_acts: 0,
})
const functions = [
  { name: 'mean', signature: 'mean(x, axis=None)', doc: 'The mean over an axis, or over all.' },
  { name: 'abs', signature: 'abs(x)', doc: 'The absolute value.' },
  { name: 'histogram', signature: 'histogram(x, bins=64)', doc: 'Counts of the values in equal bins.' },
  { name: 'quantile', signature: 'quantile(x, q)', doc: 'The q-quantile of the values.' },
  { name: 'norm', signature: 'norm(x)', doc: 'The Euclidean norm.' },
]

const read = async (request) => {
  let body = ''
  for await (const chunk of request) body += chunk
  return JSON.parse(body || '{}')
}
async function answer(request, path, send, fail) {
  if (path === 'session') return send({ role: 'controller', version: '0.0.fake', directories: ['/home/ada/runs'] })
  if (path === 'runs') return send({ runs: runs.map(shown) })
  if (path === 'functions') return send(functions)
  if (path === 'scalars') return send(null, encode((await read(request)).requests.map(series)))
  const [, key, rest = ''] = /^runs\/([^/]+)\/?(.*)$/.exec(path) ?? []
  const run = runs.find((one) => one.key === key)
  if (!run) return fail(404, 'UnknownNameError', `Unknown run '${key}'.`)
  if (rest === '') return send({ ...shown(run), description: run.live ? describe(run) : null, history: run.live ? history : [], streams: run.live ? streams : [] })
  if (rest === 'tags') return send({ tags: tags.map((tag) => ({ tag, type: 'scalar', n: stepsOf(run), first_step: 0, last_step: stepsOf(run), query: null })) })
  if (rest === 'check') {
    const { query } = await read(request)
    const bad = query.indexOf('los)')
    return query.includes('lss') ? fail(400, 'UnknownNameError', "Unknown observable 'lss' at event 'batch'. Did you mean 'loss'?", query.indexOf('lss')) : send({ ok: true, tag: query, canonical: query, bad })
  }
  if (rest === 'acts') {
    const act = await read(request)
    if (act.kind === 'set') {
      const control = controls[act.name]
      if (control.max !== null && act.value > control.max) return fail(400, 'ActError', `Control '${act.name}' takes at most ${control.max}, got ${act.value} (declared at ${control.where}).`)
      control.value = act.value
    }
    if (act.kind === 'pause') run.state = 'paused'
    if (act.kind === 'resume') run.state = 'running'
    if (act.kind === 'stop') Object.assign(run, { state: 'ended', live: false, ended: Date.now() / 1000, last_step: stepsOf(run) })
    history.push({ ...act, step: stepsOf(run), wall_time: Date.now() / 1000 })
    return send({ step: stepsOf(run), applied: true })
  }
  if (rest === 'record') return send({ recorded: true })
  return fail(404, 'UnknownNameError', `Nothing is at ${path}.`)
}

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://x')
  const headers = { 'Content-Security-Policy': CSP, 'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer' }
  const send = (body, bytes) => {
    response.writeHead(200, { ...headers, 'Content-Type': bytes ? 'application/msgpack' : 'application/json' })
    response.end(bytes ?? JSON.stringify(body))
  }
  const fail = (status, type, message, position) => {
    response.writeHead(status, { ...headers, 'Content-Type': 'application/json' })
    response.end(JSON.stringify({ error: { type, message, position } }))
  }
  if (pathname.startsWith('/api/v1/')) {
    if (request.headers.authorization !== 'Bearer fake') return fail(401, 'AccessError', 'Unknown token.')
    return void answer(request, decodeURIComponent(pathname.slice(8)), send, fail).catch((error) => fail(500, 'Error', error.message))
  }
  const path = normalize(pathname === '/' ? '/index.html' : pathname)
  try {
    const bytes = readFileSync(join(ROOT, path))
    response.writeHead(200, { ...headers, 'Content-Type': TYPES[extname(path)] ?? 'application/octet-stream' })
    response.end(bytes)
  } catch {
    fail(404, 'NotFound', path)
  }
})

const sockets = new WebSocketServer({ server, path: '/api/v1/live' })
sockets.on('connection', (ws) => {
  const timers = new Map()
  const say = (message) => ws.readyState === 1 && ws.send(JSON.stringify(message))
  ws.on('message', (data) => {
    const message = JSON.parse(data)
    if (message.type === 'hello') return message.token === 'fake' ? say({ type: 'welcome', role: 'controller' }) : ws.close(4401)
    if (message.type === 'runs') timers.set('runs', setInterval(() => say({ type: 'runs', runs: runs.map(shown) }), 2000))
    if (message.type === 'close') clearInterval(timers.get(message.id))
    if (message.type === 'open') openStream(message, say, (body) => ws.readyState === 1 && ws.send(encode(body)), timers)
  })
  ws.on('close', () => timers.forEach(clearInterval))
})

function openStream({ id, query, run: key }, say, sendBytes, timers) {
  if (query.includes('lss')) return say({ type: 'refused', id, error: 'UnknownNameError', message: "Unknown observable 'lss' at event 'batch'. Did you mean 'loss'?", position: query.indexOf('lss') })
  const run = runs.find((one) => one.key === key)
  const kind = /histogram/.test(query) ? 'histogram' : /confusion|grads\["head"\]$/.test(query) ? 'heatmap' : /keys|map/.test(query) ? 'bars' : /text/.test(query) ? 'log' : 'line'
  say({ type: 'opened', id, tag: query, note: '' })
  say({ type: 'view', id, view: { view: kind, kinds: ['number'], possible: [kind, 'log', 'table'] } })
  let first = 0
  const f64 = (list) => new Uint8Array(Float64Array.from(list).buffer)
  const i64 = (list) => new Uint8Array(BigInt64Array.from(list, BigInt).buffer)
  const push = (n) => {
    const at = Array.from({ length: n }, (_, i) => first + i)
    const body = { id, first, n, step: f64(at), wall: f64(at.map(() => Date.now() / 1000)), index: i64(at) }
    if (kind === 'line') body.y = f64(at.map((i) => valueAt('train/loss', run, i)))
    else body.values = at.map((i) => valueOf(kind, i))
    first += n
    sendBytes(body)
  }
  push(kind === 'line' ? 500 : 4)
  timers.set(id, setInterval(() => (push(kind === 'line' ? 10 : 1), say({ type: 'statistics', id, n_records: first, n_events: first, n_skipped: 0, n_dropped: first > 800 ? 12 : 0, spent_s: first * 1e-5, stride: 1 })), 1000))
}

function valueOf(kind, i) {
  const random = randomOf(i)
  if (kind === 'log') return `step ${i}: the loss is <b>falling</b>`
  if (kind === 'bars') return { dense: random(), bias: -random(), head: random() * 2 }
  if (kind === 'histogram') return { edges: Array.from({ length: 33 }, (_, k) => k / 8 - 2), counts: Array.from({ length: 32 }, (_, k) => Math.round(500 * Math.exp(-(((k - 16 - i / 8) / (5 + i / 20)) ** 2)))) }
  return { dtype: 'float32', shape: [24, 24], data: new Uint8Array(Float32Array.from({ length: 576 }, (_, k) => Math.sin(k / 9 + i / 3) + random() / 3).buffer) }
}

server.listen(Number(options.port), '127.0.0.1', () => console.log(`http://127.0.0.1:${options.port}/#token=fake`))
