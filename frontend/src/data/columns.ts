// The columns of the table of runs that come from series: which there can be, which are needed, and their values.

import { batch, computed, effect, signal, untracked } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { at, update } from '../state/state'
import { messageOf, postToRead } from './api'
import { columnValues, withoutTotals } from './columnValues'
import { file } from './file'
import type { Fault } from './expression'
import { FACTS, flatConfig } from './filter'
import { repeated } from './repeated'
import { filter, filtered, runs } from './runs'

interface Columns {
  keys: string[]
  values: (number | string | null)[][]
  tags: string[]
  statistics: string[]
  n_pending: number
  without: string[]
}

/** While runs grow, their columns are read this often. */
const REST_MS = 2_000
/** The server's limit. */
const MAX_COLUMNS = 100
const CHOSEN = 'sightglass-columns'

export const tags = signal<string[]>([])
export const statistics = signal<string[]>([])
/** How many runs the server has not read yet. */
export const nPending = signal(0)
/** Why the columns could not be read, or empty. */
export const columnsProblem = signal('')

/** The columns that the reader chose, in their order; null stands for metrics and the config values in which the runs differ. */
export const chosen = computed((): string[] | null => at.columns.value ?? (file ? null : remembered.value))
const remembered = signal<string[] | null>(JSON.parse(localStorage.getItem(CHOSEN) ?? 'null') as string[] | null)

export function choose(columns: string[] | null): void {
  remembered.value = columns
  if (columns) localStorage.setItem(CHOSEN, JSON.stringify(columns))
  else localStorage.removeItem(CHOSEN)
  update({ columns })
}

/** The keys by which the table is sorted, the first one first, each with a `-` before it if it falls. */
export const sortKeys = (sort: string): string[] => sort.split('|').filter(Boolean)

/** A column's tag and statistic, or null if it is not one of a series. */
export function parsed(column: string): [string, string] | null {
  const dot = column.lastIndexOf('.')
  const [tag, statistic] = [column.slice(0, dot), column.slice(dot + 1)]
  return dot > 0 && statistics.value.includes(statistic) && (tags.value.includes(tag) || isAtBest(tag, statistic)) ? [tag, statistic] : null
}

/** Whether it is a series where another is best: `loss@val/accuracy.max`. */
function isAtBest(tag: string, statistic: string): boolean {
  const both = tag.split('@')
  return ['min', 'max'].includes(statistic) && both.length === 2 && both.every((one) => tags.value.includes(one))
}

const N_METRICS = 8

/** The last values of what the files of the runs call their metrics, shown without a choice. */
export const metricColumns = computed(() => [...new Set(filtered.value.flatMap(({ metrics }) => metrics))].map((tag) => `${tag}.last`).filter(parsed).slice(0, N_METRICS))

/** Whether the table is open. */
export const tableOpen = signal(false)

/** Columns that others show now, each as often as it is shown: rows of the comparison. */
const watched = signal<readonly string[]>([])

/** Read a column while a component shows it. */
export function useColumn(name: string): void {
  useEffect(() => {
    watched.value = [...watched.peek(), name]
    return () => {
      const i = watched.peek().indexOf(name)
      watched.value = watched.peek().filter((_, j) => j !== i)
    }
  }, [name])
}

/** What the table shows, and names in the order, the looks and the filter that may be columns of series. */
const named = computed(() => {
  const names = [...sortKeys(at.sort.value).map((key) => key.replace(/^-/, '')), ...filter.value.keys.map(({ key }) => key), at.colorby.value, at.dashby.value, at.facet.value].filter(Boolean)
  return [...new Set([...(tableOpen.value ? (chosen.value ?? metricColumns.value) : []), ...names, ...watched.value])].filter((name) => !FACTS.includes(name))
})

/** A column of the server's for a name: itself, or of a tag alone its last value. */
const columnOf = (name: string): string[] => (parsed(name) ? [name] : tags.value.includes(name) ? [`${name}.last`] : [])
const needed = computed(() => [...new Set(named.value.flatMap(columnOf))].slice(0, MAX_COLUMNS))

const configNames = computed(() => new Set((runs.value ?? []).flatMap((run) => Object.keys(flatConfig(run)))))

/** How many runs the filter cannot judge: it compares what series come to, and theirs are not added up. */
export const nUnjudged = computed(() => (filter.value.keys.some(({ key }) => !configNames.value.has(key) && columnOf(key).length) ? (runs.value ?? []).filter(({ key }) => withoutTotals.value.has(key)).length : 0))

/** Names in filters: config keys, tags, facts. */
export const filterNames = computed(() => [...configNames.value, ...tags.value, ...FACTS])

/** What the server calls a column: a config key, what a series comes to, or a fact. */
export const serverColumn = (name: string): string => (configNames.value.has(name) ? `config.${name}` : parsed(name) ? name : `run.${name}`)

/** What is wrong with the filter, and where: it cannot be read, or compares a name that no run has. */
export const filterFault = computed((): Fault | null => {
  if (filter.value.fault) return filter.value.fault
  if (!runs.value?.length || nPending.value || !answered.value) return null
  const known = new Set(filterNames.value)
  const unknown = filter.value.keys.find(({ key }) => !known.has(key) && !parsed(key))
  return unknown ? { message: `No run has ${unknown.key}.${meant(unknown.key)}`, at: unknown.at } : null
})

function meant(name: string): string {
  const last = name.slice(Math.max(name.lastIndexOf('.'), name.lastIndexOf('/')) + 1).toLowerCase()
  const near = filterNames.value.find((one) => one.toLowerCase().includes(name.toLowerCase())) ?? filterNames.value.find((one) => last && one.toLowerCase().split(/[./]/).includes(last))
  return near ? ` Did you mean ${near}?` : ''
}

/** Whether the tags are known. */
const answered = signal(false)

let latest = 0

async function load(): Promise<void> {
  if (!tableOpen.peek() && named.peek().length === 0) return
  const mine = ++latest
  try {
    const columns = needed.peek()
    const answer = await postToRead<Columns>('columns', { columns })
    if (mine !== latest) return // a later request knows better what is needed
    batch(() => {
      columnValues.value = new Map(columns.map((name, i) => [name, valuesOf(answer.keys, answer.values[i]!)]))
      tags.value = same(tags.peek(), answer.tags)
      statistics.value = same(statistics.peek(), answer.statistics)
      nPending.value = answer.n_pending
      withoutTotals.value = new Set(answer.without ?? []) // a page that was saved before has none
      answered.value = true
      columnsProblem.value = ''
    })
  } catch (error) {
    columnsProblem.value = messageOf(error)
  }
}

function valuesOf(keys: string[], values: (number | string | null)[]): Map<string, number> {
  const found = new Map<string, number>()
  values.forEach((one, i) => one !== null && found.set(keys[i]!, Number(one)))
  return found
}

const same = (old: string[], now: string[]): string[] => (old.length === now.length && old.every((one, i) => one === now[i]) ? old : now)

/** Keep the columns up to date. */
export function followColumns(): void {
  const loading = repeated(load, REST_MS)
  let waiting = 0
  effect(() => {
    needed.value
    named.value
    clearTimeout(waiting)
    waiting = window.setTimeout(load) // once for all rows that appear together
  })
  effect(() => {
    if (runs.value) loading.tell()
  })
  effect(() => {
    if (nPending.value) void untracked(load)
  })
}
