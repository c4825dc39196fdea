// What may come next in a query: events, observables, what is inside them, functions, reducers and their windows.

import type { Description, FunctionInfo } from '../../data/types'

export interface Completion {
  text: string
  detail: string
  doc: string
}

export interface Completions {
  /** What is replaced: from here to the caret. */
  from: number
  items: Completion[]
}

const MAX_ITEMS = 40
const STEPS: Completion[] = [
  { text: 'mean(every=100)', detail: 'reducer', doc: 'The mean of every 100 events' },
  { text: 'quantile(0.9)', detail: 'reducer', doc: "The 0.9-quantile of each of the run's own groups" },
  { text: 'histogram(64, every=100)', detail: 'reducer', doc: 'Counts of the values in bins' },
  { text: 'max(every=100)', detail: 'reducer', doc: 'The largest of every 100 events' },
  { text: 'std(every=100)', detail: 'reducer', doc: 'The deviation of every 100 events' },
  { text: 'mean()', detail: 'function', doc: 'The mean of the value itself' },
  { text: 'norm()', detail: 'function', doc: 'The Euclidean norm of the value' },
  { text: 'shape', detail: 'attribute', doc: 'The shape of the array' },
]

/** The completions at a caret. */
export function completionsAt(text: string, caret: number, description: Description | null, functions: readonly FunctionInfo[]): Completions {
  const before = text.slice(0, caret)
  const word = /[A-Za-z_]\w*$/.exec(before)?.[0] ?? ''
  const from = caret - word.length
  const head = before.slice(0, from)
  const events = description?.events ?? {}

  const key = /(\w+)\.(\w+)\[(["'])([^"'\]]*)$/.exec(before)
  if (key) {
    const fields = events[key[1]!]?.observables[key[2]!]?.fields ?? {}
    const close = `${key[3]}]`
    const items = Object.entries(fields).map(([name, type]) => ({ text: name + close, detail: type, doc: '' }))
    return { from: caret - key[4]!.length, items: matching(items, key[4]!) }
  }
  const path = /([A-Za-z_]\w*)\.$/.exec(head)
  if (path && events[path[1]!]) return { from, items: matching(observablesOf(description!, path[1]!), word) }
  if (/[\w\])]\.$/.test(head)) return { from, items: matching(STEPS, word) }
  return { from, items: matching([...eventsOf(description), ...functions.map(functionItem)], word) }
}

function eventsOf(description: Description | null): Completion[] {
  return Object.entries(description?.events ?? {}).map(([name, event]) => ({
    text: `${name}.`,
    detail: 'event',
    doc: `${event.n_events.toLocaleString('en')} so far`,
  }))
}

function observablesOf(description: Description, event: string): Completion[] {
  return Object.entries(description.events[event]!.observables).map(([name, { type, example }]) => ({
    text: name,
    detail: type,
    doc: example ? `now ${example}` : '',
  }))
}

const functionItem = ({ name, signature, doc }: FunctionInfo): Completion => ({ text: `${name}(`, detail: signature, doc })

function matching(items: Completion[], word: string): Completion[] {
  const wanted = word.toLowerCase()
  const found = items.filter(({ text }) => text.toLowerCase().includes(wanted) && text !== word)
  const starts = (item: Completion) => Number(item.text.toLowerCase().startsWith(wanted))
  return found.sort((a, b) => starts(b) - starts(a)).slice(0, MAX_ITEMS)
}

/** Queries worth trying on a run, from what it offers. */
export function suggestions(description: Description): string[] {
  const found: string[] = []
  for (const [event, { observables }] of Object.entries(description.events)) {
    for (const [name, { type, fields }] of Object.entries(observables)) {
      if (/^(float|int)\d*$/.test(type) && name !== 'step') found.push(`${event}.${name}`)
      const field = Object.keys(fields)[0]
      if (field) found.push(`norm(${event}.${name}["${field}"])`)
      else if (type.includes('[')) found.push(`${event}.${name}`)
    }
  }
  return found.slice(0, 10)
}
