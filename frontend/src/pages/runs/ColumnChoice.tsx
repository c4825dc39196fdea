// The choice of the table's columns: config keys, and what series come to.

import { useMemo, useState } from 'preact/hooks'
import { choose, chosen, parsed, statistics, tags } from '../../data/columns'
import { configKeys } from '../../data/filter'
import { runs } from '../../data/runs'
import { at, NEWEST, toggled, update } from '../../state/state'
import { Dialog, IconButton, Search } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { FACT_KEYS, shownColumns, withColumn } from './tableColumns'

const ROW = 34
/** The statistics with a button in each row; the others follow once their name is searched. */
const COMMON = ['last', 'min', 'max']

/** Chosen columns at whose step the other series are offered. */
const MAX_BESTS = 2

type Row = { kind: 'config' | 'tag' | 'fact'; name: string }

const KINDS = { config: 'config value', tag: 'series', fact: 'fact' }

export function ColumnChoice({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState('')
  const now = shownColumns()
  const stuck = at.stuck.value
  const all = useMemo((): Row[] => {
    const config = configKeys(runs.value ?? []).map(({ key }): Row => ({ kind: 'config', name: key }))
    return [...tags.value.map((name): Row => ({ kind: 'tag', name })), ...config, ...FACT_KEYS.map((name): Row => ({ kind: 'fact', name }))]
  }, [tags.value, runs.value])
  const words = text.toLowerCase().split(/\s+/).filter((word) => word && !statistics.value.includes(word))
  const found = all.filter(({ kind, name }) => words.every((word) => `${name} ${KINDS[kind]}`.toLowerCase().includes(word)))
  const heights = useMemo(() => found.map(() => ROW), [found.length])
  const offered = [...COMMON, ...statistics.value.filter((one) => !COMMON.includes(one) && text.toLowerCase().split(/\s+/).includes(one))]
  const bests = now.filter((column) => ['min', 'max'].includes(parsed(column)?.[1] ?? '') && !column.includes('@')).slice(0, MAX_BESTS)
  const toggle = (column: string) => {
    choose(now.includes(column) ? toggled(now, column) : withColumn(now, column))
    // Who asks for the best value wants to know whose it is; an order that was chosen stays.
    if (at.sort.peek() === NEWEST && !now.includes(column)) update({ sort: { max: `-${column}`, min: column }[parsed(column)?.[1] ?? ''] ?? NEWEST })
  }
  return (
    <Dialog label="Columns" onClose={onClose}>
      <div class="columns">
        <header class="columns-head">
          <h2>Columns</h2>
          <IconButton icon="close" label="Close" onClick={onClose} />
        </header>
        <Search label="Search columns" placeholder="Search: tags, config keys, mean, argmax …" value={text} problem={null} onChange={setText} />
        {now.length > 0 && (
          <ol class="columns-chosen" aria-label="Chosen columns">
            {now.map((column, i) => (
              <li key={column}>
                <button type="button" class="text-button" disabled={i === 0} aria-label={`Move ${column} to the left`} onClick={() => choose([...now.slice(0, i - 1), column, now[i - 1]!, ...now.slice(i + 1)])}>
                  ←
                </button>
                <span title={column}>{column}</span>
                <IconButton icon="pin" label={`${stuck.includes(column) ? 'Let' : 'Keep'} ${column} ${stuck.includes(column) ? 'scroll' : 'in sight'}`} pressed={stuck.includes(column)} onClick={() => update({ stuck: toggled(stuck, column) })} />
                <IconButton icon="close" label={`Remove ${column}`} onClick={() => toggle(column)} />
              </li>
            ))}
          </ol>
        )}
        {found.length ? (
          <Rows
            label="Columns to choose from"
            class="columns-rows"
            heights={heights}
            keyOf={(i) => `${found[i]!.kind} ${found[i]!.name}`}
            row={(i) => <RowView row={found[i]!} now={now} offered={offered} bests={bests} onToggle={toggle} />}
          />
        ) : (
          <p class="muted">{all.length ? `None of ${all.length} matches.` : 'No run has a series of numbers or a config yet.'}</p>
        )}
        <footer class="columns-foot">
          <button type="button" class="button" disabled={chosen.value === null} onClick={() => choose(null)}>
            What differs
          </button>
          <span class="muted">Without a choice, the config values in which the runs differ are shown.</span>
        </footer>
      </div>
    </Dialog>
  )
}

interface RowProps {
  row: Row
  now: string[]
  offered: string[]
  /** Columns of the lowest or the highest value of a series: others can be shown at their steps. */
  bests: string[]
  onToggle: (column: string) => void
}

function RowView({ row: { kind, name }, now, offered, bests, onToggle }: RowProps) {
  const atBests = bests.filter((best) => parsed(best)![0] !== name).map((best) => ({ column: `${name}@${best}`, text: `at ${best}` }))
  const options = kind !== 'tag' ? [{ column: name, text: kind === 'fact' ? 'shown' : 'value' }] : [...offered.map((one) => ({ column: `${name}.${one}`, text: one })), ...atBests]
  return (
    <div class="columns-row">
      <span class="columns-name" title={name}>
        {name}
      </span>
      {options.map(({ column, text }) => (
        <button key={column} type="button" class="chip" title={column} aria-pressed={now.includes(column)} aria-label={`${name} ${text}`} onClick={() => onToggle(column)}>
          {text}
        </button>
      ))}
    </div>
  )
}
