// The runs that are drawn, side by side: what differs in their configs, and what became of them.

import { signal } from '@preact/signals'
import { useMemo } from 'preact/hooks'
import { durationOf } from '../../data/filter'
import { labelOf, shown, showAll, styleOfRun } from '../../data/runs'
import { scalarTags, tagOf } from '../../data/tags'
import type { Run } from '../../data/types'
import { at, update } from '../../state/state'
import { Empty, IconButton, Toggle } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { count, dateTime, duration, number, value } from '../../views/format'
import { useSeries } from '../charts/series'
import { changeOf, comparedConfig, rowOf, type ComparedRow } from './compared'
import { Name } from './Name'
import { Ring, StateDot } from '../../run/StateDot'

const MAX_RUNS = 40
const ROW_HEIGHT = 32

const onlyDiffering = signal(true)

type Row = { kind: 'head'; name: string; n: number } | ({ kind: 'values' } & ComparedRow) | { kind: 'tag'; name: string }

export function Compare() {
  const runs = shown.value.slice(0, MAX_RUNS)
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
        <span class="muted">
          {shown.value.length > MAX_RUNS ? `The first ${MAX_RUNS} of ${shown.value.length} runs. ` : ''}Last values show their difference from the first run. Pin a run to put it first.
        </span>
      </div>
      <div class="run-table-scroll" style={{ '--table-width': `${150 + 162 * runs.length}px` }}>
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
    rowOf('last step', runs.map((run) => (run.last_step === null ? undefined : count(run.last_step)))),
    rowOf('host', runs.map((run) => run.host || undefined)),
    rowOf('source', runs.map((run) => run.source)),
  ].filter(wanted)
  const under = (name: string, rows: Row[]): Row[] => (rows.length ? [{ kind: 'head', name, n: rows.length }, ...rows] : [])
  const values = (row: ComparedRow): Row => ({ kind: 'values', ...row })
  return [
    ...under('Config', config.map(values)),
    ...under('Facts', facts.map(values)),
    ...under('Last values', Array.from(scalarTags.value.keys(), (name): Row => ({ kind: 'tag', name }))),
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
        {row.name}
      </span>
      {row.kind === 'tag' ? <LastValues tag={row.name} runs={runs} /> : row.values.map((one, i) => <Cell key={runs[i]!.key} run={runs[i]!} value={one} state={row.name === 'state'} />)}
    </div>
  )
}

function Cell({ run, value: one, base, state = false }: { run: Run; value: unknown; base?: unknown; state?: boolean }) {
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
      {state ? <StateDot state={run.state} word /> : text}
      {change !== null && <span class="compare-change">{changeText(change)}</span>}
    </span>
  )
}

function changeText(change: number): string {
  const percent = Math.abs(change * 100)
  const text = percent >= 1000 ? `×${number(1 + change, 3)}` : `${change > 0 ? '+' : '−'}${number(percent, 2)} %`
  return text
}

/** The last value of a tag in each run. */
function LastValues({ tag, runs }: { tag: string; runs: Run[] }) {
  const having = runs.filter((run) => tagOf(run.key, tag))
  const entries = useSeries(having.map((run) => ({ run: run.key, tag, x: 'step' as const, points: 1, from: tagOf(run.key, tag)!.last_step ?? undefined })))
  const last = new Map(
    entries.map(({ request, data }) => {
      const y = data.value?.y
      return [request.run, y?.[y.length - 1]]
    }),
  )
  return (
    <>
      {runs.map((run) => (
        <Cell key={run.key} run={run} value={last.get(run.key)} base={last.get(runs[0]!.key)} />
      ))}
    </>
  )
}
