// Groups of runs: by keys of their configs or facts, with what their runs have in common.

import { inOrder } from './order'
import { configKeys, FACTS, flatConfig, valueOf } from './filter'
import type { Run } from './types'

/** The order of two values; what is missing, or NaN, comes last in either direction. */
export function compareValues(a: unknown, b: unknown, falling: boolean): number {
  const [p, q] = [a, b].map((one) => (Number.isNaN(one) ? undefined : (one ?? undefined)))
  if (p === q) return 0
  if (p === undefined) return 1
  if (q === undefined) return -1
  const sign = falling ? -1 : 1
  if (typeof p === 'number' && typeof q === 'number') return sign * (p - q)
  return sign * inOrder(String(p), String(q))
}

/** The keys of a choice of groups: `a|b` stands for these, `!a|!b` for all that differ but these. */
export function keysOfGroup(choice: string, runs: readonly Run[]): string[] {
  const parts = choice.split('|').filter(Boolean)
  if (!parts[0]?.startsWith('!')) return parts
  const without = new Set(parts.map((part) => part.replace(/^!/, '')))
  const keys = configKeys(runs).filter(({ key, n_values }) => n_values > 1 && !without.has(key))
  return keys.length ? keys.map(({ key }) => key) : ['name']
}

export const nameOfGroup = (run: Run, keys: readonly string[]): string => keys.map((key) => textOf(key, valueOf(run, key))).join(' ')

const textOf = (key: string, value: unknown): string =>
  value === undefined ? `no ${key}` : `${key}=${written(value)}`

/** A value as a text; JSON would make null of infinities and NaN. */
const written = (value: unknown): string | undefined => (typeof value === 'string' || typeof value === 'number' ? String(value) : JSON.stringify(value))

/** What the runs of a group have in a column. */
export interface Together {
  /** What all of them have, or the mean of their numbers; undefined if neither is known. */
  value: unknown
  /** The standard deviation of the sample, beside a mean. */
  std: number | null
  /** How many different values they have. */
  n: number
}

export function together(members: readonly Run[], key: string): Together {
  const values = members.map((run) => valueOf(run, key))
  const n = new Set(values.map(written)).size
  if (n === 1) return { value: values[0], std: null, n }
  const there = values.filter((value) => value !== undefined)
  const numbers = there.filter((value): value is number => typeof value === 'number' && !Number.isNaN(value))
  const isMeasured = key === 'duration' || key === 'last_step' || !(FACTS.includes(key) || members.some((run) => key in flatConfig(run)))
  if (!isMeasured || numbers.length < Math.max(2, there.length)) return { value: undefined, std: null, n }
  const mean = numbers.reduce((sum, one) => sum + one, 0) / numbers.length
  const squares = numbers.reduce((sum, one) => sum + (one - mean) ** 2, 0)
  const std = Math.sqrt(squares / (numbers.length - 1))
  return { value: mean, std: Number.isFinite(std) ? std : null, n } // without one beside an infinity
}

/** The groups: in the order of what they have in the columns that sort the runs, then in a natural order of their names. */
export function grouped(runs: readonly Run[], keys: readonly string[], sorts: readonly string[]): Map<string, Run[]> {
  const found = new Map<string, Run[]>()
  for (const run of runs) {
    const name = nameOfGroup(run, keys)
    const members = found.get(name)
    if (members) members.push(run)
    else found.set(name, [run])
  }
  const ranks = new Map(Array.from(found, ([name, members]) => [name, sorts.map((sort) => together(members, sort.replace(/^-/, '')).value)]))
  const order = (a: string, b: string): number => {
    for (const [i, sort] of sorts.entries()) {
      const one = compareValues(ranks.get(a)![i], ranks.get(b)![i], sort.startsWith('-'))
      if (one) return one
    }
    return inOrder(a, b)
  }
  return new Map([...found].sort(([a], [b]) => order(a, b)))
}
