// The columns of the table of runs: those that the reader chose, or facts and the config values in which the runs differ.

import { computed, signal } from '@preact/signals'
import { chosen, metricColumns, parsed } from '../../data/columns'
import { NOT_ADDED_UP, withoutTotals } from '../../data/columnValues'
import { useDetail } from '../../data/details'
import { configKeys, durationOf, valueOf } from '../../data/filter'
import { filtered } from '../../data/runs'
import type { Run } from '../../data/types'
import { StateDot } from '../../run/StateDot'
import { at } from '../../state/state'
import { count, dateTime, duration, number, value } from '../../views/format'
import { Labels } from './Labels'
import { percent } from './Streams'

const N_CONFIG_COLUMNS = 6
const NAME_WIDTH = 220
/** A mean and a deviation. */
const MEAN_WIDTH = 148
export const GAP = 12
/** Of a sheet of paper across, in pixels. */
const PAPER_WIDTH = 960
export const MIN_WIDTH = 48

/** A clock for durations that grow. */
const now_s = signal(Date.now() / 1000)
setInterval(() => document.hidden || (now_s.value = Date.now() / 1000), 1000)

export interface Column {
  /** Empty if the table cannot be sorted by it. */
  key: string
  title: string
  /** In pixels. */
  width: number
  /** Where it stays while others scroll, in pixels from the left. */
  left?: number
  cell: (run: Run) => preact.ComponentChildren
}

export const FACTS: Column[] = [
  { key: 'state', title: 'State', width: 92, cell: (run) => <StateDot state={run.state} why={run.why} problem={run.problem} word /> },
  { key: 'started', title: 'Started', width: 150, cell: (run) => (run.started === null ? '' : dateTime(run.started)) },
  { key: 'duration', title: 'Duration', width: 110, cell: (run) => <Duration run={run} /> },
  { key: 'last_step', title: 'Last step', width: 84, cell: (run) => (run.last_step === null ? '' : count(Number(run.last_step))) },
]

const STREAMS: Column = { key: '', title: 'Streams', width: 130, cell: (run) => (run.live ? <StreamCount run={run.key} /> : '') }

const LABELS: Column = { key: 'labels', title: 'Labels', width: 150, cell: (run) => <Labels of={run.annotations} /> }

/** Facts that are worth a column only where they differ. */
const ORIGINS: Column[] = [
  { key: 'project', title: 'Project', width: 110, cell: (run) => run.project },
  { key: 'source', title: 'Source', width: 100, cell: (run) => run.source },
  { key: 'host', title: 'Host', width: 100, cell: (run) => run.host },
]

/** Facts that are shown once they are chosen. */
const MORE: Column[] = [
  { key: 'ended', title: 'Ended', width: 150, cell: (run) => (run.ended === null ? '' : dateTime(run.ended)) },
  { key: 'sentence', title: 'Summary', width: 320, cell: (run) => run.sentence },
  { key: 'id', title: 'Id', width: 110, cell: (run) => run.id },
  { key: 'directory', title: 'Directory', width: 200, cell: (run) => run.directory },
]

export const FACT_KEYS = [...FACTS, LABELS, ...ORIGINS, ...MORE].map(({ key }) => key)

/** The number of streams of a live run, and their share of its time. */
function StreamCount({ run }: { run: string }) {
  const { detail } = useDetail(run)
  if (!detail) return null
  const n = detail.streams.length
  if (n === 0) return <span class="muted">none</span>
  return <>{`${n} ${n === 1 ? 'stream' : 'streams'}${detail.share === null ? '' : ` · ${percent(detail.share)}`}`}</>
}

const Duration = ({ run }: { run: Run }) => {
  const length = durationOf(run, run.live ? now_s.value : 0)
  return <>{length === null ? '' : duration(Math.round(length))}</>
}

/** A column of a fact, of a config key, or of what a series comes to. */
const columnOf = (key: string): Column =>
  [...FACTS, LABELS, ...ORIGINS, ...MORE].find((fact) => fact.key === key) ?? { key, title: key, width: Math.min(200, Math.max(110, 24 + 7 * key.length)), cell: (run) => <ValueCell run={run} column={key} /> }

function ValueCell({ run, column }: { run: Run; column: string }) {
  const found = valueOf(run, column)
  if (found === undefined && parsed(column) && withoutTotals.value.has(run.key)) return <span class="muted" title={NOT_ADDED_UP}>not added up</span>
  return <>{cellOf(found)}</>
}

/** A number as a person writes it: all digits of an integer, in threes. */
export const cellOf = (one: unknown): string => {
  if (typeof one !== 'number') return value(one ?? '')
  return Number.isInteger(one) && Math.abs(one) >= 1000 && Math.abs(one) < 1e15 ? one.toLocaleString('en-US').replace('-', '−') : number(one, 5)
}

const wanted = computed((): Column[] => {
  if (chosen.value) return chosen.value.map(columnOf)
  const differing = configKeys(filtered.value).filter(({ n_values }) => n_values > 1)
  const config = differing.slice(0, N_CONFIG_COLUMNS).map(({ key }) => ({ ...columnOf(key), width: 110 }))
  const differs = ({ key }: Column) => new Set(filtered.value.map((run) => valueOf(run, key))).size > 1
  const asked = filtered.value.some((run) => run.live) ? [STREAMS] : []
  const labels = filtered.value.some(({ annotations: { labels, baseline } }) => labels.length > 0 || baseline) ? [LABELS] : []
  return [...FACTS, ...labels, ...asked, ...metricColumns.value.map(columnOf), ...config, ...ORIGINS.filter(differs)]
})

/** The keys of the columns that are shown, from which a choice begins. */
export const shownColumns = (): string[] => wanted.value.flatMap(({ key }) => key || [])

/** The columns with one more: facts and series stand before the configuration, which is often wider than the window. */
export function withColumn(now: string[], column: string): string[] {
  const config = now.findIndex((key) => !FACT_KEYS.includes(key) && !parsed(key))
  const isFirst = FACT_KEYS.includes(column) || parsed(column) !== null
  return config >= 0 && isFirst ? [...now.slice(0, config), column, ...now.slice(config)] : [...now, column]
}

/** The width of a table, and how much smaller it is made for paper. */
export const fitting = (width: number): Record<string, string | number> => ({ '--table-width': `${width}px`, '--paper-zoom': Math.min(1, PAPER_WIDTH / width) })

/** The width that is being dragged. */
export const dragged = signal<{ key: string; width: number } | null>(null)

const widthOf = (key: string, standard: number): number => (dragged.value?.key === key ? dragged.value.width : (at.widths.value[key] ?? standard))

/** The width of the column of names; it fills what is left unless it has one. */
export const nameWidth = computed(() => widthOf('name', at.stuck.value.length ? NAME_WIDTH : 0))

/** The columns in their order: those that stay in sight come first. */
export const columns = computed((): Column[] => {
  const stuck = at.stuck.value
  const all = wanted.value.map((column) => ({ ...column, width: widthOf(column.key, at.group.value && parsed(column.key) ? Math.max(MEAN_WIDTH, column.width) : column.width) }))
  let left = nameWidth.value + GAP
  const first = all.filter(({ key }) => stuck.includes(key)).map((column) => {
    const placed = { ...column, left }
    left += column.width + GAP
    return placed
  })
  return [...first, ...all.filter(({ key }) => !stuck.includes(key))]
})
