// All runs with their facts, and the columns that the reader chose, or the config values in which they differ.

import { useEffect, useMemo, useState } from 'preact/hooks'
import { postForBytes } from '../../data/api'
import { NOT_ADDED_UP } from '../../data/columnValues'
import { columnsProblem, nPending, nUnjudged, parsed, serverColumn, sortKeys, tableOpen } from '../../data/columns'
import { file } from '../../data/file'
import { durationOf, valueOf } from '../../data/filter'
import { together } from '../../data/groups'
import { useWatched } from '../../data/growth'
import { styleOfGroup, styleOfRun } from '../../data/looks'
import { filtered, groupKeys, labelOf, runs, setShown, shown, shownKeys } from '../../data/runs'
import { isSelected, selectAll, selected } from '../../data/selection'
import type { Run } from '../../data/types'
import { Ring } from '../../run/StateDot'
import { at, toggled, update } from '../../state/state'
import { Choice, Empty, IconButton, Menu, Toggle } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { tellError } from '../../ui/toasts'
import { saveFile } from '../../views/export'
import { duration, meanAndDeviation } from '../../views/format'
import { NoMatch, NoRuns } from '../charts/Charts'
import { ColumnChoice } from './ColumnChoice'
import { Compare } from './Compare'
import { GroupBy } from './GroupBy'
import { LinkedViews } from './linked/LinkedViews'
import { Name } from './Name'
import { RunFilter } from './RunFilter'
import { keyOf, rows as listed } from './rows'
import { columns, dragged, fitting, GAP, MIN_WIDTH, nameWidth, type Column } from './tableColumns'
import { SelectBox, SelectionBar } from './SelectionBar'
import { tableCsv } from './tableCsv'

const ROW_HEIGHT = 36

/** What a file of the table has: who a run is, and the columns that are shown. */
const fileColumns = (): string[] => [...new Set(['name', 'id', 'key', ...columns.value.flatMap(({ key }) => key || [])])]

/** Save the runs of the filter in their order. */
function saveCsv(): void {
  const names = fileColumns()
  const cellOfRun = (run: Run, name: string): unknown => {
    if (name === 'key') return run.key
    if (name === 'started') return run.started === null ? undefined : new Date(run.started * 1000).toISOString()
    return name === 'duration' ? durationOf(run, Date.now() / 1000) : valueOf(run, name)
  }
  saveFile('runs.csv', tableCsv(names, filtered.value.map((run) => names.map((name) => cellOfRun(run, name)))), 'text/csv')
}

async function saveParquet(): Promise<void> {
  const body = { columns: fileColumns().map(serverColumn), runs: filtered.value.map(({ key }) => key) }
  await postForBytes('runs.parquet', body).then((file) => saveFile('runs.parquet', file), tellError)
}

const FILES = [
  { text: 'CSV', onClick: saveCsv },
  { text: 'Parquet', onClick: () => void saveParquet() },
]

export function RunTable() {
  const rows = listed.value
  const compare = at.compare.value
  const views = at.views.value && !compare && rows.length > 0
  const shape = `58px ${nameWidth.value ? `${nameWidth.value}px` : 'minmax(200px, 420px)'} ${columns.value.map(({ width }) => `${width}px`).join(' ')} minmax(40px, 1fr)`
  const heights = useMemo(() => rows.map(() => ROW_HEIGHT), [rows.length])
  const n = filtered.value.length
  const [choosing, setChoosing] = useState(false)
  useEffect(() => {
    tableOpen.value = true
    return () => void (tableOpen.value = false)
  }, [])
  const width = 102 + (nameWidth.value || 200) + columns.value.reduce((sum, { width }) => sum + width + GAP, 0)
  return (
    <section class={`run-table ${views ? 'has-views' : ''}`} aria-label="Runs">
      <div class="toolbar">
        <RunFilter />
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
        {!compare && groupKeys.value.length > 0 && <Toggle label="Only groups" on={at.fold.value} onChange={(fold) => update({ fold })} />}
        {!compare && <Toggle label="Views" title="Scatter, best so far and parallel coordinates of these runs" on={at.views.value} onChange={(views) => update({ views })} />}
        {!compare && (
          <button type="button" class="button" aria-haspopup="dialog" onClick={() => setChoosing(true)}>
            Columns
          </button>
        )}
        {!compare && n > 0 && <Menu icon="download" label="Save the table" items={file ? FILES.slice(0, 1) : FILES} />}
        <span class="muted">
          {n} of {runs.value?.length ?? 0}
          <PutAway />
          {nPending.value > 0 && ` · ${nPending.value} still to read`}
          {nUnjudged.value > 0 && <span title={NOT_ADDED_UP}> · {nUnjudged.value} cannot be judged by this filter</span>}
          {columnsProblem.value && ` · ${columnsProblem.value}`}
        </span>
      </div>
      {views && <LinkedViews />}
      {!compare && <SelectionBar />}
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
        <div class="run-table-scroll" style={fitting(width)}>
          <Rows
            class="run-table-rows"
            label="Runs"
            role="grid"
            heights={heights}
            keyOf={(i) => keyOf(rows[i]!)}
            row={(i) => {
              const row = rows[i]!
              return row.kind === 'group' ? <GroupHead name={row.name} runs={row.runs} shape={shape} /> : <TableRow run={row.run} shape={shape} />
            }}
            header={<Header shape={shape} />}
          />
        </div>
      )}
    </section>
  )
}

/** How many runs the list leaves out, and a way to them. */
function PutAway() {
  const all = runs.value ?? []
  const ways = [
    ['archived', 'archived', all.filter(({ annotations: { archived, deleted } }) => archived && !deleted).length],
    ['deleted', 'in the trash', all.filter(({ annotations: { deleted } }) => deleted > 0).length],
  ] as const
  return (
    <>
      {ways.map(
        ([key, text, n]) =>
          n > 0 && (
            <>
              {' · '}
              <button key={key} type="button" class="text-button" onClick={() => update({ filter: `${key}=true` })}>
                {n} {text}
              </button>
            </>
          ),
      )}
    </>
  )
}

/** A group: what its runs have in common, and the means of their numbers with their standard deviations. */
function GroupHead({ name, runs: members, shape }: { name: string; runs: Run[]; shape: string }) {
  const keys = members.map((run) => run.key)
  const n = keys.filter((key) => shownKeys.value.has(key)).length
  return (
    <div class="table-row table-group" role="row" style={{ gridTemplateColumns: shape }}>
      <span role="gridcell" class="table-first">
        <button type="button" class="run-swatch" role="checkbox" aria-checked={n === 0 ? 'false' : n === keys.length ? 'true' : 'mixed'} aria-label={`Show ${name}`} onClick={() => setShown(keys, n < keys.length)}>
          <Ring style={styleOfGroup(name)} on={n > 0} />
        </button>
      </span>
      <span role="gridcell" title={name}>
        {name} <span class="muted">{keys.length}</span>
      </span>
      {columns.value.map((column) => (
        <span key={column.key} role="gridcell" class={cellClass(column)} style={column.left === undefined ? undefined : { left: `${column.left}px` }}>
          {column.key && <TogetherCell column={column} members={members} />}
        </span>
      ))}
    </div>
  )
}

const cellClass = ({ key, left }: Column): string => `table-cell ${parsed(key) ? 'is-number' : ''} ${left === undefined ? '' : 'is-stuck'}`

function TogetherCell({ column: { key, cell }, members }: { column: Column; members: Run[] }) {
  const { value, std, n } = together(members, key)
  if (std !== null) return key === 'duration' ? <>{duration(Math.round(value as number))}</> : <Mean mean={value as number} std={std} />
  return n === 1 ? <>{cell(members[0]!)}</> : <span class="muted">{n} values</span>
}

function Mean({ mean, std }: { mean: number; std: number }) {
  const [value, deviation] = meanAndDeviation(mean, std)
  return (
    <>
      {value} <span class="muted">± {deviation}</span>
    </>
  )
}

function Header({ shape }: { shape: string }) {
  return (
    <div class="table-row table-head" role="row" style={{ gridTemplateColumns: shape }}>
      <span role="columnheader" class="table-first">
        <input type="checkbox" class="select-box" aria-label="Select all" checked={selected.value.length > 0 && selected.value.length === filtered.value.length} onClick={({ currentTarget }) => selectAll(currentTarget.checked)} />
        <span class="unseen">Shown</span>
      </span>
      <Sorter sort="name" title="Name" />
      {columns.value.map((column) =>
        column.key ? (
          <Sorter key={column.key} sort={column.key} title={column.title} left={column.left} />
        ) : (
          <span key={column.title} role="columnheader">
            {column.title}
          </span>
        ),
      )}
      <span role="columnheader">
        <span class="unseen">Pin</span>
      </span>
    </div>
  )
}

function Sorter({ sort, title, left }: { sort: string; title: string; left?: number | undefined }) {
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
    <span role="columnheader" class={left === undefined ? '' : 'is-stuck'} style={left === undefined ? undefined : { left: `${left}px` }} aria-sort={up ? 'ascending' : down ? 'descending' : 'none'}>
      <button type="button" onClick={onClick} title={`Sort by ${title}; with Shift, by it after the others`}>
        {title}
        {(up || down) && <span aria-hidden="true">{`${up ? ' ↑' : ' ↓'}${place || ''}`}</span>}
      </button>
      <span class="table-resize" aria-hidden="true" title="Drag for another width; double-click for the first one" onPointerDown={(event) => resize(event, sort)} onDblClick={() => setWidth(sort, null)} />
    </span>
  )
}

function setWidth(key: string, width: number | null): void {
  const { [key]: _, ...others } = at.widths.peek()
  update({ widths: width === null ? others : { ...others, [key]: width } })
}

function resize(event: PointerEvent, key: string): void {
  const handle = event.currentTarget as HTMLElement
  const [from, before] = [event.clientX, handle.parentElement!.getBoundingClientRect().width]
  handle.setPointerCapture(event.pointerId)
  const onMove = ({ clientX }: PointerEvent) => (dragged.value = { key, width: Math.max(MIN_WIDTH, Math.round(before + clientX - from)) })
  const onUp = () => {
    handle.removeEventListener('pointermove', onMove)
    if (dragged.value) setWidth(key, dragged.value.width)
    dragged.value = null
  }
  handle.addEventListener('pointermove', onMove)
  handle.addEventListener('pointerup', onUp, { once: true })
  handle.addEventListener('pointercancel', onUp, { once: true })
  event.preventDefault()
}

function TableRow({ run, shape }: { run: Run; shape: string }) {
  const on = shownKeys.value.has(run.key)
  const pinned = at.pin.value.includes(run.key)
  const open = at.run.value === run.key
  const label = labelOf(run.key)
  useWatched(run.key)
  return (
    <div class={`table-row ${open ? 'is-open' : ''}`} role="row" aria-selected={isSelected(run.key)} style={{ gridTemplateColumns: shape }}>
      <span role="gridcell" class="table-first">
        <SelectBox run={run.key} label={label} on={isSelected(run.key)} />
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
        <span key={column.key} role="gridcell" class={cellClass(column)} style={column.left === undefined ? undefined : { left: `${column.left}px` }}>
          {column.cell(run)}
        </span>
      ))}
      <span role="gridcell" class={pinned ? '' : 'table-pin'}>
        <IconButton icon="pin" label={`${pinned ? 'Unpin' : 'Pin'} ${label}`} pressed={pinned} onClick={() => update({ pin: toggled(at.pin.peek(), run.key) })} />
      </span>
    </div>
  )
}
