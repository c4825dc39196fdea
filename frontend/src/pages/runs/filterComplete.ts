// Completions of a filter: names of columns, what may follow a tag, values that runs have, and the words between conditions.

import { inOrder } from '../../data/order'
import { valueOf } from '../../data/filter'
import type { Run } from '../../data/types'
import type { Completion, Completions } from '../../ui/completions'

interface Known {
  names: readonly { name: string; kind: string }[]
  statistics: readonly string[]
  runs: readonly Run[]
}

const MAX_ITEMS = 40
const MAX_VALUES = 200
const WORD = /[\w./@-]*$/
const BEFORE_VALUE = /(?:([\w./@-]+)|"([^"]*)")(?:\s*(?:<=|>=|!=|==|=|<|>)|\s+(?:not\s+)?in\s*[([]?(?:[^)\]]*,)?|\s+contains)\s*"?$/

/** The completions at the end of a text; unless they were asked for, only of a word that was begun. */
export function completionsOf(before: string, known: Known, asked: boolean): Completions {
  const word = WORD.exec(before)![0]
  const head = before.slice(0, before.length - word.length)
  const key = BEFORE_VALUE.exec(head)
  const quotes = (head.match(/"/g) ?? []).length
  if (key) {
    const inQuotes = quotes % 2 === 1
    const from = before.length - word.length - Number(inQuotes)
    return { from, items: word || asked || inQuotes || /\s$/.test(head) ? matching(valuesOf(known.runs, key[1] ?? key[2]!), word) : [] }
  }
  if (quotes % 2 || (!word && !asked)) return { from: before.length, items: [] }
  const from = before.length - word.length
  const tag = known.names.find(({ name, kind }) => kind === 'series' && word.startsWith(`${name}.`))?.name
  if (tag) return { from, items: matching(known.statistics.map((one) => ({ text: `${tag}.${one}`, kind: 'series' })), word) }
  const after = /[\w)"\]]\s+$/.test(head) && !/(^|\s)(and|or|not)\s+$/i.test(head)
  const names = known.names.map(({ name, kind }) => ({ text: written(name), kind }))
  const words = (after ? ['and', 'or', 'not'] : ['not']).map((text) => ({ text, kind: 'word' }))
  return { from, items: matching([...(after ? words : []), ...names, ...(after ? [] : words)], word) }
}

const written = (name: string): string => (/^[\w./@-]+$/.test(name) ? name : `"${name}"`)

function valuesOf(runs: readonly Run[], key: string): Completion[] {
  const found = new Set<string>()
  for (const run of runs) {
    const value = valueOf(run, key)
    if (value === undefined || (typeof value === 'object' && value !== null)) continue
    found.add(value === null ? 'none' : typeof value === 'string' ? `"${value}"` : String(value))
    if (found.size > MAX_VALUES) return []
  }
  return [...found].sort(inOrder).map((text) => ({ text, kind: 'value' }))
}

function matching(items: Completion[], word: string): Completion[] {
  const wanted = word.toLowerCase()
  const place = ({ text }: Completion) => text.toLowerCase().replace(/^"/, '').indexOf(wanted)
  const found = items.filter((item) => item.text !== word && place(item) >= 0)
  return found.sort((a, b) => Number(place(a) > 0) - Number(place(b) > 0)).slice(0, MAX_ITEMS)
}
