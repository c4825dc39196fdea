// The runs that are drawn, side by side, in the order of the table: what differs in their configs, and what became of them.

import { signal } from '@preact/signals'
import { useMemo } from 'preact/hooks'
import { sortKeys, useColumn } from '../../data/columns'
import { totalOf } from '../../data/columnValues'
import { durationOf } from '../../data/filter'
import { styleOfRun } from '../../data/looks'
import { filtered, labelOf, shownKeys, showAll } from '../../data/runs'
import { scalarTags } from '../../data/tags'
import type { Run } from '../../data/types'
import { at, update } from '../../state/state'
import { Choice, Empty, IconButton, Toggle } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { count, dateTime, duration, number, value } from '../../views/format'
import { changeOf, comparedConfig, rowOf, type ComparedRow } from './compared'
import { Name } from './Name'
import { TextButton } from './Program'
import { fitting } from './tableColumns'
import { Ring, StateDot } from '../../run/StateDot'

/** More cells than a thousand in sight would make scrolling jerk. */
const MAX_RUNS = 100
const ROW_HEIGHT = 32

const OF = [['last', 'Last'], ['min', 'Lowest'], ['max', 'Highest'], ['mean', 'Mean'], ['first', 'First']] as const
/** The heads of facts that sort the runs by another name than their own. */
const FACT_KEYS: Record<string, string> = { 'last step': 'last_step' }

const onlyDiffering = signal(true)

type Row = { kind: 'head'; name: string; n: number } | ({ kind: 'values' } & ComparedRow) | { kind: 'tag'; name: string }

export function Compare() {
  const all = filtered.value.filter((run) => shownKeys.value.has(run.key))
  const runs = all.slice(0, MAX_RUNS)
  const only = onlyDiffering.value
  const rows = rowsOf(runs, only)
  const heights = useMemo(() => rows.map(() => ROW_HEIGHT), [rows.length])
  if (runs.length === 0) {
    return (
      <Empty title="No run to compare">
        <p>The visible runs are compared. Click the colour of a run in the list to show it.</p>
        <button type="button" class="button" onClick={showAll}>
          Draw all
        </button>
      </Empty>
    )
  }
  const shape = `minmax(150px, 220px) repeat(${runs.length}, minmax(150px, 220px))`
  return (
    <>
      <div class="compare-tools">
        <Toggle label="Only differences" on={only} onChange={(on) => (onlyDiffering.value = on)} />
        <Choice label="Values of series" options={OF} value={at.of.value} onChange={(of) => update({ of })} />
        <span class="muted">
          {all.length > MAX_RUNS ? `The first ${MAX_RUNS} of ${all.length} runs. ` : ''}Values show their difference from the first run. Pin a run to put it first; click the name of a row to sort the runs by it.
        </span>
      </div>
      <div class="run-table-scroll" style={fitting(150 + 162 * runs.length)}>
        <Rows
          class="run-table-rows compare"
          label="Comparison of runs"
          role="grid"
          heights={heights}
          keyOf={(i) => `${rows[i]!.kind} ${rows[i]!.name}`}
          row={(i) => <RowView row={rows[i]!} runs={runs} shape={shape} />}
          header={<Heads runs={runs} shape={shape} />}
        />
      </div>
    </>
  )
}

function rowsOf(runs: Run[], only: boolean): Row[] {
  const wanted = (row: ComparedRow) => !only || row.differs
  const config = comparedConfig(runs).filter(wanted)
  const facts = [
    rowOf('state', runs.map((run) => run.state)),
    rowOf('started', runs.map((run) => (run.started === null ? undefined : dateTime(run.started)))),
    rowOf('duration', runs.map((run) => lengthOf(run))),
    rowOf('last step', runs.map((run) => (run.last_step === null ? undefined : count(Number(run.last_step))))),
    rowOf('commit', runs.map((run) => run.commit || undefined)),
    rowOf('host', runs.map((run) => run.host || undefined)),
    rowOf('source', runs.map((run) => run.source)),
  ].filter(wanted)
  const under = (name: string, rows: Row[]): Row[] => (rows.length ? [{ kind: 'head', name, n: rows.length }, ...rows] : [])
  const values = (row: ComparedRow): Row => ({ kind: 'values', ...row })
  return [
    ...under('Config', config.map(values)),
    ...under('Facts', facts.map(values)),
    ...under(`${OF.find(([of]) => of === at.of.value)![1]} values`, Array.from(scalarTags.value.keys(), (name): Row => ({ kind: 'tag', name }))),
  ]
}

function lengthOf(run: Run): string | undefined {
  const length = durationOf(run, Date.now() / 1000)
  return length === null ? undefined : duration(Math.round(length))
}

function Heads({ runs, shape }: { runs: Run[]; shape: string }) {
  return (
    <div class="table-row table-head" role="row" style={{ gridTemplateColumns: shape }}>
      <span role="columnheader" class="compare-name">
        {runs.length} {runs.length === 1 ? 'run' : 'runs'}
      </span>
      {runs.map((run) => (
        <span key={run.key} role="columnheader" class="compare-head">
          <Ring style={styleOfRun(run.key)} on />
          <button type="button" class="run-name" title={labelOf(run.key)} onClick={() => update({ run: at.run.value === run.key ? '' : run.key })}>
            <Name run={run} />
          </button>
          <PinFirst run={run.key} />
        </span>
      ))}
    </div>
  )
}

function PinFirst({ run }: { run: string }) {
  const pins = at.pin.value
  const pinned = pins.includes(run)
  return <IconButton icon="pin" label={`${pinned ? 'Unpin' : 'Pin'} ${labelOf(run)}`} pressed={pinned} onClick={() => update({ pin: pinned ? pins.filter((key) => key !== run) : [run, ...pins] })} />
}

function RowView({ row, runs, shape }: { row: Row; runs: Run[]; shape: string }) {
  if (row.kind === 'head') {
    return (
      <div class="table-row table-group" role="row">
        <span role="gridcell" class="compare-name">
          {row.name} <span class="muted">{row.n}</span>
        </span>
      </div>
    )
  }
  return (
    <div class={`table-row ${row.kind === 'values' && row.differs ? 'is-differing' : ''}`} role="row" style={{ gridTemplateColumns: shape }}>
      <span role="rowheader" class="compare-name" title={row.name}>
        <Sorter name={row.name} sort={row.kind === 'tag' ? `${row.name}.${at.of.value}` : (FACT_KEYS[row.name] ?? row.name)} />
      </span>
      {row.kind === 'tag' ? <Values column={`${row.name}.${at.of.value}`} runs={runs} /> : row.values.map((one, i) => <Cell key={runs[i]!.key} run={runs[i]!} value={one} fact={row.name} />)}
    </div>
  )
}

function Cell({ run, value: one, base, fact = '' }: { run: Run; value: unknown; base?: unknown; fact?: string }) {
  if (one === undefined) {
    return (
      <span role="gridcell" class="muted">
        –
      </span>
    )
  }
  const change = changeOf(one, base)
  const text = typeof one === 'number' ? number(one, 6) : value(one)
  return (
    <span role="gridcell" title={change === null ? text : `${text}, ${changeText(change)} from the first`}>
      {fact === 'state' && one === run.state ? (
        <StateDot state={run.state} word />
      ) : fact === 'commit' && one === run.commit && one.includes(',') ? (
        <TextButton run={run} what="changes">
          {text}
        </TextButton>
      ) : (
        text
      )}
      {change !== null && <span class="compare-change">{changeText(change)}</span>}
    </span>
  )
}

function changeText(change: number): string {
  const percent = Math.abs(change * 100)
  const text = percent >= 1000 ? `×${number(1 + change, 3)}` : `${change > 0 ? '+' : '−'}${number(percent, 2)} %`
  return text
}

/** The name of a row, which sorts the runs by its values. */
function Sorter({ name, sort }: { name: string; sort: string }) {
  const first = sortKeys(at.sort.value)[0]
  const [up, down] = [first === sort, first === `-${sort}`]
  return (
    <button type="button" class="run-name" title={`Sort the runs by ${name}`} onClick={() => update({ sort: down ? sort : `-${sort}` })}>
      {name}
      {(up || down) && <span aria-hidden="true">{up ? ' →' : ' ←'}</span>}
    </button>
  )
}

/** What a series comes to in each run. */
function Values({ column, runs }: { column: string; runs: Run[] }) {
  useColumn(column)
  return (
    <>
      {runs.map((run) => (
        <Cell key={run.key} run={run} value={totalOf(run.key, column)} base={totalOf(runs[0]!.key, column)} />
      ))}
    </>
  )
}
