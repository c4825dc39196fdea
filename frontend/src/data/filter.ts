// Which runs match a filter, see `expression.ts`: words on their names, and comparisons of their columns, which are config
// keys, facts, and what series come to.

import { numberOf } from '../views/cells'
import { totalOf } from './columnValues'
import { keysOf, parse, type Fault, type Node, type Operator } from './expression'
import type { Annotations, Run } from './types'

export interface Filter {
  matches: (run: Run) => boolean
  /** What cannot be read; that part matches everything, so that typing does not empty the list. */
  fault: Fault | null
  /** The names that it compares, with their places. */
  keys: { key: string; at: number }[]
}

/** What people wrote down about a run. */
const ANNOTATED = ['labels', 'notes', 'archived', 'baseline', 'deleted']

/** What is known of a run beside its config. */
export const FACTS = [...ANNOTATED, 'name', 'id', 'state', 'source', 'project', 'host', 'directory', 'started', 'ended', 'duration', 'last_step', 'live', 'sentence', 'problem']

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

/** The config of a run as one level of names. */
export function flatConfig({ config }: Pick<Run, 'config'>): Record<string, unknown> {
  let flat = flattened.get(config)
  if (!flat) flattened.set(config, (flat = flatten(config)))
  return flat
}

/** A value of a run by name: a config key, else a fact, else what a series comes to: of a tag alone, its last value. */
export function valueOf(run: Run, key: string): unknown {
  const config = flatConfig(run)
  if (key in config) return decoded(config[key])
  if (key === 'duration') return durationOf(run, Date.now() / 1000) ?? undefined
  if (key === 'deleted') return run.annotations.deleted > 0
  if (ANNOTATED.includes(key)) return run.annotations[key as keyof Annotations]
  if (FACTS.includes(key)) return run[key as keyof Run] ?? undefined
  return totalOf(run.key, key) ?? totalOf(run.key, `${key}.last`)
}

/** JSON has infinities and NaN as texts. */
const decoded = (value: unknown): unknown => (typeof value === 'string' && /^(NaN|-?Infinity)$/.test(value) ? Number(value) : value)

export function durationOf(run: Run, now_s: number): number | null {
  if (run.started === null) return null
  const end = run.ended ?? (run.live ? now_s : null)
  return end === null ? null : Math.max(0, end - run.started)
}

/** Whether a list leaves a run out: it is in the archive or in the trash, and the filter does not ask for those. */
export const isPutAway = ({ annotations: { archived, deleted } }: Run, asked: ReadonlySet<string>): boolean => (deleted > 0 && !asked.has('deleted')) || (archived && !asked.has('archived'))

export function parseFilter(text: string): Filter {
  const { node, fault } = parse(text)
  return { matches: (run) => node === null || holds(node, run), fault, keys: keysOf(node) }
}

function holds(node: Node, run: Run): boolean {
  switch (node.kind) {
    case 'word':
      return node.pattern.test(run.name) || node.pattern.test(run.id)
    case 'not':
      return !holds(node.of, run)
    case 'and':
      return node.of.every((one) => holds(one, run))
    case 'or':
      return node.of.some((one) => holds(one, run))
    case 'compare': {
      const found = valueOf(run, node.key)
      if (found === undefined) return false
      if (node.pattern) return node.pattern.test(String(found))
      return node.values.some((wanted) => compare(found, node.operator, wanted, node.key))
    }
  }
}

const UNITS: Record<string, number> = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 }

/** A value as it was written: of times also a date, of durations also `2h` and `30 min`. */
function read(wanted: string, key: string): number {
  const [, size, unit] = /^([\d.]+) ?([a-z]+)$/.exec(wanted) ?? []
  if (key === 'duration' && unit && unit in UNITS) return Number(size) * UNITS[unit]!
  if ((key === 'started' || key === 'ended') && /^\d{4}-\d\d/.test(wanted)) return new Date(wanted.length === 10 ? `${wanted}T00:00` : wanted).getTime() / 1000
  return numberOf(wanted)
}

function compare(value: unknown, operator: Operator, wanted: string, key: string): boolean {
  if (key === 'labels' && Array.isArray(value)) return value.some((one) => compare(one, '=', wanted, '')) === (operator !== '!=')
  if (operator === 'contains') {
    if (Array.isArray(value)) return value.some((one) => compare(one, '=', wanted, key))
    return String(value).toLowerCase().includes(wanted.toLowerCase())
  }
  const [a, b] = [value === null ? NaN : Number(value), read(wanted, key)]
  const numeric = typeof value !== 'boolean' && value !== '' && wanted !== '' && !Number.isNaN(a) && !Number.isNaN(b)
  const text = value === null ? 'none' : (typeof value === 'object' ? JSON.stringify(value) : String(value)).toLowerCase()
  const equal = numeric ? a === b : text === wanted.toLowerCase() || (value === null && wanted.toLowerCase() === 'null')
  if (operator === '!=') return !equal
  if (operator === '=' || operator === 'in') return equal
  if (!numeric) return false
  return { '<': a < b, '>': a > b, '<=': a <= b, '>=': a >= b, '~': false }[operator]
}

/** The config keys of some runs; those that differ between runs come first, since they are worth grouping by. */
export function configKeys(runs: readonly Run[]): { key: string; n_values: number }[] {
  const seen = new Map<string, Set<string>>()
  for (const run of runs) {
    for (const [key, value] of Object.entries(flatConfig(run))) {
      let values = seen.get(key)
      if (!values) seen.set(key, (values = new Set()))
      if (values.size < 100) values.add(JSON.stringify(value))
    }
  }
  const keys = Array.from(seen, ([key, values]) => ({ key, n_values: values.size }))
  return keys.sort((a, b) => Number(b.n_values > 1) - Number(a.n_values > 1) || a.key.localeCompare(b.key))
}
