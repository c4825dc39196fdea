// Runs side by side: their facts, configs and last values as rows, and which rows differ.

import { flatten } from '../../data/filter'
import type { Run } from '../../data/types'

export interface ComparedRow {
  name: string
  /** One value a run; undefined where it has none. */
  values: unknown[]
  differs: boolean
}

/** The config of several runs, key by key, in the order of the first that has it. */
export function comparedConfig(runs: readonly Pick<Run, 'config'>[]): ComparedRow[] {
  const flat = runs.map((run) => flatten(run.config))
  const keys = new Set(flat.flatMap(Object.keys))
  return Array.from(keys, (key) => rowOf(key, flat.map((config) => config[key])))
}

export function rowOf(name: string, values: unknown[]): ComparedRow {
  return { name, values, differs: new Set(values.map((one) => JSON.stringify(one))).size > 1 }
}

/** How far a number lies from another, as a share of that; null where that says nothing. */
export function changeOf(value: unknown, base: unknown): number | null {
  if (typeof value !== 'number' || typeof base !== 'number' || base === 0 || value === base) return null
  const change = (value - base) / Math.abs(base)
  return Number.isFinite(change) ? change : null
}
