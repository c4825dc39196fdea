// All runs with their facts, and the columns that the reader chose, or the config values in which they differ.

import { computed, signal } from '@preact/signals'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { chosen, columnsProblem, nPending, parsed, sortKeys, tableOpen } from '../../data/columns'
import { configKeys, valueOf } from '../../data/filter'
import { useDetail } from '../../data/details'
import { useWatched } from '../../data/growth'
import { durationOf, filter, filtered, labelOf, runs, setShown, shown, shownKeys, styleOfGroup, styleOfRun } from '../../data/runs'
import type { Run } from '../../data/types'
import { at, toggled, update } from '../../state/state'
import { Choice, Empty, IconButton, Search } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { count, dateTime, duration, number, value } from '../../views/format'
import { NoMatch, NoRuns } from '../charts/Charts'
import { ColumnChoice } from './ColumnChoice'
import { Compare } from './Compare'
import { Name } from './Name'
import { keyOf, rows as listed } from './rows'
import { GroupBy } from './RunList'
import { Ring, StateDot } from '../../run/StateDot'
import { percent } from './Streams'
import { saveFile } from '../../views/export'
import { tableCsv } from './tableCsv'

const N_CONFIG_COLUMNS = 6
const ROW_HEIGHT = 36

/** A clock for durations that grow. */
const now_s = signal(Date.now() / 1000)
setInterval(() => document.hidden || (now_s.value = Date.now() / 1000), 1000)

interface Column {
  key: string
  title: string
  width: string
  cell: (run: Run) => preact.ComponentChildren
}

const FACTS: Column[] = [
  { key: 'state', title: 'State', width: '92px', cell: (run) => <StateDot state={run.state} problem={run.problem} word /> },
  { key: 'started', title: 'Started', width: '150px', cell: (run) => (run.started === null ? '' : dateTime(run.started)) },
  { key: 'duration', title: 'Duration', width: '110px', cell: (run) => <Duration run={run} /> },
  { key: 'last_step', title: 'Last step', width: '84px', cell: (run) => (run.last_step === null ? '' : count(run.last_step)) },
]

const STREAMS: Column = { key: '', title: 'Streams', width: '130px', cell: (run) => (run.live ? <StreamCount run={run.key} /> : '') }

/** Facts that are worth a column only where they differ. */
const ORIGINS: Column[] = [
  { key: 'source', title: 'Source', width: '100px', cell: (run) => run.source },
  { key: 'host', title: 'Host', width: '100px', cell: (run) => run.host },
]

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

/** A column of the reader's: of a config key, or of what a series comes to. */
const columnOf = (key: string): Column => ({ key, title: key, width: `${Math.min(200, Math.max(110, 24 + 7 * key.length))}px`, cell: (run) => cellOf(valueOf(run, key)) })

const cellOf = (one: unknown): string => (typeof one === 'number' ? number(one, 5) : value(one ?? ''))

const columns = computed(() => {
  if (chosen.value) return [...FACTS, ...chosen.value.map(columnOf)]
  const differing = configKeys(filtered.value).filter(({ n_values }) => n_values > 1)
  const config = differing.slice(0, N_CONFIG_COLUMNS).map(({ key }) => ({ ...columnOf(key), width: '110px' }))
  const differs = ({ key }: Column) => new Set(filtered.value.map((run) => valueOf(run, key))).size > 1
  const asked = filtered.value.some((run) => run.live) ? [STREAMS] : []
  return [...FACTS, ...asked, ...config, ...ORIGINS.filter(differs)]
})

/** Save the runs of the filter in their order, with the columns that are shown. */
function saveTable(): void {
  const names = ['name', 'id', 'key', ...columns.value.flatMap(({ key }) => key || [])]
  const cellOfRun = (run: Run, name: string): unknown => {
    if (name === 'key') return run.key
    if (name === 'started') return run.started === null ? undefined : new Date(run.started * 1000).toISOString()
    return name === 'duration' ? durationOf(run, Date.now() / 1000) : valueOf(run, name)
  }
  saveFile('runs.csv', tableCsv(names, filtered.value.map((run) => names.map((name) => cellOfRun(run, name)))), 'text/csv')
}

export function RunTable() {
  const rows = listed.value
  const compare = at.compare.value
  const shape = `36px minmax(200px, 1fr) ${columns.value.map((column) => column.width).join(' ')} 40px`
  const heights = useMemo(() => rows.map(() => ROW_HEIGHT), [rows.length])
  const n = filtered.value.length
  const [choosing, setChoosing] = useState(false)
  useEffect(() => {
    tableOpen.value = true
    return () => void (tableOpen.value = false)
  }, [])
  const width = 430 + columns.value.reduce((sum, { width }) => sum + Number.parseInt(width) + 12, 0) - 150
  return (
    <section class="run-table" aria-label="Runs">
      <div class="toolbar">
        <Search label="Filter runs" placeholder="Filter: regex, lr<0.1, loss.min<2, state=running" hotkey="/" value={at.filter.value} problem={filter.value.problem} onChange={(text) => update({ filter: text })} />
        <Choice
          label="List or compare"
          value={compare ? 'compare' : 'list'}
          options={[
            ['list', 'List'],
            ['compare', `Compare ${shown.value.length}`],
          ]}
          onChange={(way) => update({ compare: way === 'compare' })}
        />
        {!compare && <GroupBy />}
        {!compare && (
          <button type="button" class="button" aria-haspopup="dialog" onClick={() => setChoosing(true)}>
            Columns
          </button>
        )}
        {!compare && <IconButton icon="download" label="Save the table as CSV" disabled={n === 0} onClick={saveTable} />}
        <span class="muted">
          {n} of {runs.value?.length ?? 0}
          {nPending.value > 0 && ` · ${nPending.value} still to read`}
          {columnsProblem.value && ` · ${columnsProblem.value}`}
        </span>
      </div>
      {choosing && <ColumnChoice onClose={() => setChoosing(false)} />}
      {runs.value === null ? (
        <Empty title="Looking for runs …" />
      ) : runs.value.length === 0 ? (
        <NoRuns />
      ) : n === 0 ? (
        <NoMatch />
      ) : compare ? (
        <Compare />
      ) : (
        <div class="run-table-scroll" style={{ '--table-width': `${width}px` }}>
          <Rows
            class="run-table-rows"
            label="Runs"
            role="grid"
            heights={heights}
            keyOf={(i) => keyOf(rows[i]!)}
            row={(i) => {
              const row = rows[i]!
              return row.kind === 'group' ? <GroupHead name={row.name} runs={row.runs} /> : <TableRow run={row.run} shape={shape} />
            }}
            header={<Header shape={shape} />}
          />
        </div>
      )}
    </section>
  )
}

function GroupHead({ name, runs: members }: { name: string; runs: Run[] }) {
  const keys = members.map((run) => run.key)
  const n = keys.filter((key) => shownKeys.value.has(key)).length
  return (
    <div class="table-row table-group" role="row">
      <span role="gridcell">
        <button type="button" class="run-swatch" role="checkbox" aria-checked={n === 0 ? 'false' : n === keys.length ? 'true' : 'mixed'} aria-label={`Show ${name}`} onClick={() => setShown(keys, n < keys.length)}>
          <Ring style={styleOfGroup(name)} on={n > 0} />
        </button>
      </span>
      <span role="gridcell">
        {name} <span class="muted">{keys.length}</span>
      </span>
    </div>
  )
}

function Header({ shape }: { shape: string }) {
  return (
    <div class="table-row table-head" role="row" style={{ gridTemplateColumns: shape }}>
      <span role="columnheader">
        <span class="unseen">Shown</span>
      </span>
      {[{ key: 'name', title: 'Name' }, ...columns.value].map(({ key, title }) =>
        key ? (
          <Sorter key={key} sort={key} title={title} />
        ) : (
          <span key={title} role="columnheader">
            {title}
          </span>
        ),
      )}
      <span role="columnheader">
        <span class="unseen">Pin</span>
      </span>
    </div>
  )
}

function Sorter({ sort, title }: { sort: string; title: string }) {
  const now = sortKeys(at.sort.value)
  const [up, down] = [now.includes(sort), now.includes(`-${sort}`)]
  const next = down ? sort : `-${sort}`
  const place = now.length > 1 ? now.findIndex((key) => key.replace(/^-/, '') === sort) + 1 : 0
  // With the shift key, it is one more key, or turns the order by its own.
  const onClick = ({ shiftKey }: MouseEvent) => {
    if (!shiftKey) return update({ sort: next })
    update({ sort: (up || down ? now.map((key) => (key.replace(/^-/, '') === sort ? next : key)) : [...now, next]).join('|') })
  }
  return (
    <span role="columnheader" aria-sort={up ? 'ascending' : down ? 'descending' : 'none'}>
      <button type="button" onClick={onClick} title={`Sort by ${title}; with Shift, by it after the others`}>
        {title}
        {(up || down) && <span aria-hidden="true">{`${up ? ' ↑' : ' ↓'}${place || ''}`}</span>}
      </button>
    </span>
  )
}

function TableRow({ run, shape }: { run: Run; shape: string }) {
  const on = shownKeys.value.has(run.key)
  const pinned = at.pin.value.includes(run.key)
  const open = at.run.value === run.key
  const label = labelOf(run.key)
  useWatched(run.key)
  return (
    <div class={`table-row ${open ? 'is-open' : ''}`} role="row" style={{ gridTemplateColumns: shape }}>
      <span role="gridcell">
        <button type="button" class="run-swatch" role="checkbox" aria-checked={on} aria-label={`Show ${label}`} onClick={() => setShown([run.key], !on)}>
          <Ring style={styleOfRun(run.key)} on={on} />
        </button>
      </span>
      <span role="gridcell">
        <button type="button" class="run-name" title={run.directory} onClick={() => update({ run: open ? '' : run.key })}>
          <Name run={run} />
        </button>
      </span>
      {columns.value.map((column) => (
        <span key={column.key} role="gridcell" class={`table-cell ${parsed(column.key) ? 'is-number' : ''}`}>
          {column.cell(run)}
        </span>
      ))}
      <span role="gridcell" class={pinned ? '' : 'table-pin'}>
        <IconButton icon="pin" label={`${pinned ? 'Unpin' : 'Pin'} ${label}`} pressed={pinned} onClick={() => update({ pin: toggled(at.pin.peek(), run.key) })} />
      </span>
    </div>
  )
}
