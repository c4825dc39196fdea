// Which runs match: words are regular expressions on the name, `key=value`, `key<value` and `key~regex` look into the
// config, and a `!` before a word turns it round.

import { totalOf } from './columnValues'
import type { Run } from './types'

export interface Filter {
  matches: (run: Run) => boolean
  /** Why the text is invalid; an invalid part matches everything, so that typing does not empty the list. */
  problem: string | null
}

const COMPARISON = /^([\w./-]+?)(<=|>=|!=|==|=|<|>|~)(.*)$/
const WORD = /(?:[^\s"]|"[^"]*")+/g

/** Config as one level of names: {"opt": {"lr": 1}} is {"opt.lr": 1}. */
export function flatten(config: Record<string, unknown>, prefix = ''): Record<string, unknown> {
  const flat: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(config)) {
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
      Object.assign(flat, flatten(value as Record<string, unknown>, `${prefix}${key}.`))
    } else flat[prefix + key] = value
  }
  return flat
}

const flattened = new WeakMap<object, Record<string, unknown>>()

/** A value of a run by name: a config key, else one of the run's own facts, else what a series comes to. */
export function valueOf(run: Run, key: string): unknown {
  let config = flattened.get(run.config)
  if (!config) flattened.set(run.config, (config = flatten(run.config)))
  if (key in config) return config[key]
  if (['name', 'id', 'state', 'source', 'host', 'directory', 'last_step', 'live'].includes(key)) return run[key as keyof Run]
  return totalOf(run.key, key)
}

export function parseFilter(text: string): Filter {
  const parts: ((run: Run) => boolean)[] = []
  let problem: string | null = null
  for (const word of text.match(WORD) ?? []) {
    try {
      const part = word.startsWith('!') ? partOf(word.slice(1)) : partOf(word)
      if (part) parts.push(word.startsWith('!') ? (run) => !part(run) : part)
    } catch (error) {
      problem = `${word}: ${(error as Error).message.replace(/^Invalid regular expression: /, '')}`
    }
  }
  return { matches: (run) => parts.every((part) => part(run)), problem }
}

/** The names that a filter compares. */
export const filterKeys = (text: string): string[] =>
  (text.match(WORD) ?? []).flatMap((word) => COMPARISON.exec(word.replace(/^!/, ''))?.[1] ?? [])

/** The test of one word, or null while the word is incomplete. */
function partOf(word: string): ((run: Run) => boolean) | null {
  const [, key, operator, raw = ''] = COMPARISON.exec(word) ?? []
  const wanted = (key === undefined ? word : raw).replaceAll('"', '')
  if (wanted === '') return null
  if (key !== undefined && operator !== '~') return (run) => compare(valueOf(run, key), operator!, wanted)
  const pattern = new RegExp(wanted, 'i')
  if (key === undefined) return (run) => pattern.test(run.name) || pattern.test(run.id)
  return (run) => valueOf(run, key) !== undefined && pattern.test(String(valueOf(run, key)))
}

function compare(value: unknown, operator: string, wanted: string): boolean {
  if (value === undefined) return false
  const [a, b] = [Number(value), Number(wanted)]
  const numeric = typeof value !== 'boolean' && value !== '' && Number.isFinite(a) && Number.isFinite(b)
  const equal = numeric ? a === b : String(value).toLowerCase() === wanted.toLowerCase()
  if (operator === '!=') return !equal
  if (operator === '=' || operator === '==') return equal
  if (!numeric) return false
  return { '<': a < b, '>': a > b, '<=': a <= b, '>=': a >= b }[operator]!
}

/** The config keys of some runs; those that differ between runs come first, since they are worth grouping by. */
export function configKeys(runs: readonly Run[]): { key: string; n_values: number }[] {
  const seen = new Map<string, Set<string>>()
  for (const run of runs) {
    for (const [key, value] of Object.entries(flatten(run.config))) {
      let values = seen.get(key)
      if (!values) seen.set(key, (values = new Set()))
      if (values.size < 100) values.add(JSON.stringify(value))
    }
  }
  const keys = Array.from(seen, ([key, values]) => ({ key, n_values: values.size }))
  return keys.sort((a, b) => Number(b.n_values > 1) - Number(a.n_values > 1) || a.key.localeCompare(b.key))
}
