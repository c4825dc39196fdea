// Completions of a query: events, observables and their contents, functions, reducers and their windows.
// Pure: from the text, the caret, the run's description, and the functions of queries.

import type { Description, FunctionInfo, Observable } from '../../data/types'
import { insideOf, leafOf, namesOf, step, type Inside } from './inside'

export interface Completion {
  text: string
  kind: 'event' | 'observable' | 'name' | 'function' | 'reducer' | 'window' | 'attribute' | "run's function"
  /** The type of a value, or a signature. */
  detail: string
  doc: string
}

export interface Completions {
  /** The start of the replaced text; it ends at the caret. */
  from: number
  items: Completion[]
}

const MAX_ITEMS = 60
const WORD = /[A-Za-z_]\w*$/
const PATH = String.raw`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\["[^"]*"\]|\['[^']*'\])*`
const PATH_TO_KEY = new RegExp(String.raw`(${PATH})\[(["'])([^"'\]]*)$`)
const PATH_TO_NAME = new RegExp(String.raw`(${PATH})\.$`)

/** The completions at a caret. */
export function completionsAt(text: string, caret: number, description: Description | null, functions: readonly FunctionInfo[]): Completions {
  const before = text.slice(0, caret)
  const events = description?.events ?? {}
  const key = PATH_TO_KEY.exec(before)
  if (key) {
    const [, path, quote, begun] = key
    return { from: caret - begun!.length, items: matching(namesIn(insideAt(before, path!, description), (name) => `${name}${quote}]`), begun!) }
  }
  const quoted = /\b(on\(|per=)\s*(["'])([^"']*)$/.exec(before)
  if (quoted) {
    const items = Object.entries(events).map(([name, event]): Completion => ({ text: name + quoted[2], kind: 'event', detail: '', doc: soFar(event.n_events) }))
    return { from: caret - quoted[3]!.length, items: matching(items, quoted[3]!) }
  }
  if (/(["'])(?:(?!\1).)*$/.test(before.replace(/(["'])(?:(?!\1).)*\1/g, ''))) return { from: caret, items: [] }
  const word = WORD.exec(before)?.[0] ?? ''
  const from = caret - word.length
  const head = before.slice(0, from)
  const own = ownFunctions(description)
  if (/[\w\])"']\.$/.test(head)) {
    const owner = /([A-Za-z_]\w*)\.$/.exec(head)?.[1]
    const event = owner && eventOf(head, owner, description)
    if (event && !/[\w\])]\.\w+\.$/.test(head)) return { from, items: matching(observablesOf(events[event]!.observables), word) }
    const inside = insideAt(before, PATH_TO_NAME.exec(head)?.[1] ?? '', description)
    const names = namesIn(inside, (name) => name).filter(({ text }) => step(text).startsWith('.'))
    return { from, items: matching([...names, ...functions.map(methodOf), ...ATTRIBUTES], word) }
  }
  const call = callAt(before, functions)
  const windows = call?.kind === 'reducer' && /[(,]\s*$/.test(head) ? WINDOWS : []
  if (/\d$/.test(head) || (!word && !windows.length && before.trim() && !/[(,+\-*/<>=&|~:]\s*$/.test(before))) return { from, items: [] }
  const variables = lambdaVariables(head, description).map(([name, event]): Completion => ({ text: `${name}.`, kind: 'event', detail: `one of ${event}`, doc: '' }))
  const starts = variables.length ? variables : [...eventsOf(description), ON]
  return { from, items: matching([...windows, ...starts, ...own, ...functions.filter(({ kind }) => kind !== 'reducer').map(functionOf)], word) }
}

/** The call that the caret stands in: its signature is shown while its arguments are typed. */
export function callAt(before: string, functions: readonly FunctionInfo[]): FunctionInfo | null {
  let depth = 0
  for (let i = before.length - 1; i >= 0; i--) {
    if (before[i] === ')') depth++
    if (before[i] !== '(' || depth-- > 0) continue
    const head = before.slice(0, i)
    const name = WORD.exec(head)?.[0]
    const found = functions.filter((one) => one.name === name)
    // A call on a stream's values over a window is a reducer; without one, the function on the value itself.
    const reduces = head.slice(0, head.length - (name?.length ?? 0)).endsWith('.') && /\b(every|per|when)=|^\s*$/.test(before.slice(i + 1))
    if (found.length) return found.find(({ kind }) => (kind === 'reducer') === reduces) ?? found[0]!
    depth = 0
  }
  return null
}

const soFar = (n: number): string => `${n.toLocaleString('en')} so far`

function eventsOf(description: Description | null): Completion[] {
  return Object.entries(description?.events ?? {}).map(([name, event]) => ({ text: `${name}.`, kind: 'event', detail: event.note ?? '', doc: soFar(event.n_events) }))
}

const ON: Completion = { text: 'on("', kind: 'event', detail: 'on("event").map(lambda e: …)', doc: 'The events of a kind; with map, where and reducers' }
const WINDOWS: Completion[] = [
  { text: 'every=100', kind: 'window', detail: 'events', doc: 'Closes after so many events' },
  { text: 'every="10 s"', kind: 'window', detail: 'time', doc: 'Closes after so long' },
  { text: 'per="', kind: 'window', detail: 'event', doc: 'Closes at each event of another kind' },
  { text: 'when=lambda e: ', kind: 'window', detail: 'condition', doc: 'Closes when it holds' },
]
const ATTRIBUTES: Completion[] = (['shape', 'dtype', 'ndim', 'size', 'T'] as const).map((text) => ({ text, kind: 'attribute', detail: 'of an array', doc: '' }))

function observablesOf(observables: Record<string, Observable>): Completion[] {
  return Object.entries(observables).map(([name, { type, example }]) => ({ text: name, kind: 'observable', detail: type, doc: example ? `now ${example}` : '' }))
}

const functionOf = ({ name, signature, doc }: FunctionInfo): Completion => ({ text: `${name}(`, kind: 'function', detail: signature, doc })

/** A function called on a value has the value as its first argument. */
function methodOf({ name, signature, doc, kind }: FunctionInfo): Completion {
  const rest = kind === 'reducer' ? signature : signature.replace(/\(\w+(, )?/, '(')
  return { text: rest.endsWith('()') ? `${name}()` : `${name}(`, kind: kind === 'reducer' ? 'reducer' : 'function', detail: rest, doc }
}

function ownFunctions(description: Description | null): Completion[] {
  return Object.entries(description?.functions ?? {}).map(([name, doc]) => ({ text: `${name}(`, kind: "run's function", detail: `${name}(…)`, doc }))
}

/** The names that lambdas gave to an event before the caret. */
function lambdaVariables(head: string, description: Description | null): [name: string, event: string][] {
  const event = /\bon\((["'])([^"']+)\1\)/.exec(head)?.[2]
  if (!event || !description?.events[event]) return []
  return [...head.matchAll(/\b(?:map|where)\(\s*lambda\s+(\w+)\s*:/g)].slice(-1).map((found) => [found[1]!, event])
}

function eventOf(head: string, owner: string, description: Description | null): string | null {
  const variable = lambdaVariables(head, description).find(([name]) => name === owner)
  if (variable) return variable[1]
  return description?.events[owner] ? owner : null
}

function insideAt(before: string, path: string, description: Description | null): Inside | null {
  const [owner = '', name, ...deeper] = namesOf(path)
  const event = eventOf(before, owner, description)
  const observable = event && name ? description!.events[event]!.observables[name] : null
  return observable ? deeper.reduce<Inside | null>((at, one) => at?.children.get(one) ?? null, insideOf(observable)) : null
}

function namesIn(inside: Inside | null, written: (name: string) => string): Completion[] {
  return [...(inside?.children ?? [])].map(([name, { type, children }]) => ({ text: written(name), kind: 'name', detail: type || `mapping of ${children.size}`, doc: '' }))
}

/** What is asked most often stands first among functions and reducers; the others follow by their names. */
const OFTEN = ['mean', 'norm', 'max', 'min', 'std', 'last', 'histogram', 'quantile', 'sum', 'abs', 'map', 'where', 'shape', 'isnan', 'count']

function use({ text, kind }: Completion): number {
  if (kind !== 'function' && kind !== 'reducer' && kind !== 'attribute') return -1
  const place = OFTEN.indexOf(text.replace(/\(.*/, ''))
  return place < 0 ? OFTEN.length : place
}

function matching(items: Completion[], word: string): Completion[] {
  const wanted = word.toLowerCase()
  const found = items.filter(({ text }) => text.toLowerCase().includes(wanted) && text !== word)
  const starts = ({ text }: Completion) => Number(text.toLowerCase().startsWith(wanted))
  return found.sort((a, b) => starts(b) - starts(a) || use(a) - use(b)).slice(0, MAX_ITEMS)
}

/** Queries worth trying on a run: of what happens often first; numbers before what has many. */
export function suggestions(description: Description): string[] {
  // Logged values are among the charts already.
  const events = Object.entries(description.events).sort(([a, one], [b, other]) => Number(a === 'log') - Number(b === 'log') || other.n_events - one.n_events)
  const often = events.filter(([, { n_events }]) => n_events > 1)
  const found = (often.length ? often : events).flatMap(([event, { observables }]) =>
    Object.entries(observables)
      .flatMap(([name, observable]) => worthTrying(event + step(name), name, observable))
      .sort((a, b) => a.rank - b.rank)
      .slice(0, MAX_OF_EVENT),
  )
  return found.slice(0, MAX_SUGGESTIONS).map(({ query }) => query)
}

const MAX_OF_EVENT = 7
const MAX_SUGGESTIONS = 10

function worthTrying(path: string, name: string, { type, fields }: Observable): { query: string; rank: number }[] {
  if (name === 'step') return []
  if (/^float\d*$/.test(type)) return [{ query: path, rank: 0 }, { query: `${path}.mean(every=100)`, rank: 1 }]
  if (/^int\d*$/.test(type)) return [{ query: path, rank: 4 }]
  const inside = insideOf({ type, fields } as Observable)
  const leaf = leafOf(inside)
  if (leaf) {
    const [first] = inside.children.values()
    return [
      { query: `${path}.map(lambda name, value: norm(value${leafOf(first!)}))`, rank: 2 },
      { query: path + leaf, rank: 3 },
    ]
  }
  if (/^(tuple|mapping)/.test(type)) return [{ query: path, rank: 3 }]
  return /^\w+\[\d+(, \d+)?\]$/.test(type) ? [{ query: path, rank: 3 }] : []
}
