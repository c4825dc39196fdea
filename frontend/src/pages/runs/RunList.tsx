// The list of runs beside the charts: which are visible, their colours and states.

import { signal } from '@preact/signals'
import { useMemo } from 'preact/hooks'
import { idOfGroup, styleOfGroup, styleOfRun } from '../../data/looks'
import { filtered, groupOf, labelOf, runs, setShown, shownKeys, showAll, showNone, showOnly } from '../../data/runs'
import type { Run } from '../../data/types'
import { at, NEWEST, toggled, update } from '../../state/state'
import { IconButton } from '../../ui/parts'
import { useOneStop } from '../../ui/oneStop'
import { Rows } from '../../ui/Rows'
import { count } from '../../views/format'
import { NoMatch } from '../charts/Charts'
import { lineOf, pointedLine } from '../charts/drawn'
import { GroupBy } from './GroupBy'
import { Looks } from './Looks'
import { NextColor } from './Colors'
import { Name } from './Name'
import { RunFilter } from './RunFilter'
import { keyOf, rows as listed, type Row } from './rows'
import { Ring, StateDot } from '../../run/StateDot'

const ROW_HEIGHT = 32

/** Whether the list is open; at first, if the window is wide enough for it and the charts. */
export const sidebarOpen = signal(matchMedia('(min-width: 900px)').matches)

export function RunList() {
  const rows = listed.value
  const heights = useMemo(() => rows.map(() => ROW_HEIGHT), [rows.length])
  const total = runs.value?.length ?? 0
  const box = useOneStop()
  return (
    <div class="run-list" ref={box}>
      <RunFilter />
      <GroupBy />
      <Looks />
      {total > 0 && filtered.value.length === 0 ? (
        <NoMatch />
      ) : (
        <Rows label="Runs" heights={heights} keyOf={(i) => keyOf(rows[i]!)} row={(i) => <RowView row={rows[i]!} />} />
      )}
      <div class="run-list-foot muted">
        <span role="status">
          {shownKeys.value.size} of {filtered.value.length} shown
          {filtered.value.length < total && `, ${total} in all`}
        </span>
        <span class="run-list-buttons">
          <button type="button" class="text-button" onClick={showAll} title="Show all runs of the list">
            All
          </button>
          <button type="button" class="text-button" onClick={showNone} title="Hide all runs">
            None
          </button>
          <button type="button" class="text-button" disabled={at.runs.value === null && at.hide.value.length === 0} onClick={() => update({ runs: null, hide: [] })} title="Show the first ten of the list: the newest, or the best by the column that sorts it">
            {at.sort.value === NEWEST ? 'Newest' : 'First 10'}
          </button>
        </span>
      </div>
    </div>
  )
}

function RowView({ row }: { row: Row }) {
  return row.kind === 'group' ? <GroupRow {...row} /> : <RunRow run={row.run} />
}

/** The line of a name that is pointed at stands out in the charts. */
const pointing = (line: string) => ({ onMouseEnter: () => void (pointedLine.value = line), onMouseLeave: () => void (pointedLine.value = '') })

function GroupRow({ name, runs: members }: { name: string; runs: Run[] }) {
  const keys = members.map((run) => run.key)
  const n = keys.filter((key) => shownKeys.value.has(key)).length
  return (
    <div class="run-row run-row-group">
      <button type="button" class="run-swatch" role="checkbox" aria-checked={n === 0 ? 'false' : n === keys.length ? 'true' : 'mixed'} aria-label={`Show ${name}`} onClick={() => setShown(keys, n < keys.length)}>
        <Ring style={styleOfGroup(name)} on={n > 0} />
      </button>
      <span class="run-name" title={name} {...pointing(idOfGroup(name))}>
        {name}
      </span>
      <span class="muted">{keys.length}</span>
      <span class="run-tools">
        {!at.colorby.value && <NextColor name={name} label={name} color={styleOfGroup(name).color} />}
        <IconButton icon="solo" label={`Show only ${name}`} onClick={() => showOnly(keys)} />
      </span>
    </div>
  )
}

function RunRow({ run }: { run: Run }) {
  const on = shownKeys.value.has(run.key)
  const pinned = at.pin.value.includes(run.key)
  const open = at.run.value === run.key
  const label = labelOf(run.key)
  const style = at.group.value ? styleOfGroup(groupOf(run)) : styleOfRun(run.key)
  return (
    <div class={`run-row ${open ? 'is-open' : ''} ${on ? '' : 'is-hidden'} ${at.group.value ? 'is-member' : ''}`}>
      <button
        type="button"
        class="run-swatch"
        role="checkbox"
        aria-checked={on}
        aria-label={`Show ${label}`}
        title="Show or hide; with Alt show only this one"
        onClick={(event) => (event.altKey ? showOnly([run.key]) : setShown([run.key], !on))}
      >
        <Ring style={style} on={on} />
      </button>
      <button type="button" class="run-name" title={`${label}\n${run.directory}`} aria-expanded={open} onClick={() => update({ run: open ? '' : run.key })} {...pointing(lineOf(run))}>
        <Name run={run} />
      </button>
      {run.last_step !== null && <span class="run-step">{count(Number(run.last_step))}</span>}
      <StateDot state={run.state} why={run.why} problem={run.problem} />
      <span class={`run-tools ${pinned ? 'is-pinned' : ''}`}>
        {!at.group.value && !at.colorby.value && <NextColor name={run.key} label={label} color={style.color} />}
        <IconButton icon="solo" label={`Show only ${label}`} onClick={() => showOnly([run.key])} />
        <IconButton icon="pin" label={`${pinned ? 'Unpin' : 'Pin'} ${label}`} pressed={pinned} onClick={() => update({ pin: toggled(at.pin.peek(), run.key) })} />
      </span>
    </div>
  )
}
