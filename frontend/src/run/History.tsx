// The commands that a run applied, and its alerts, newest first: at which event, when, and with what result.

import type { HistoryEntry } from '../data/types'
import { dateTime, number, value } from '../views/format'

export function History({ entries }: { entries: readonly HistoryEntry[] }) {
  if (entries.length === 0) return <p class="muted">No commands or alerts yet.</p>
  return (
    <ol class="command-history">
      {[...entries].reverse().map((entry) => (
        <li key={`${entry.wall_time} ${entry.kind} ${entry.name}`}>
          <span class="command-what">
            {entry.kind === 'alert' ? <b class={`alert-title is-${entry.note}`}>{entry.name}</b> : `${entry.kind} ${entry.name}`} <Outcome entry={entry} />
          </span>
          {entry.kind === 'alert' && entry.value !== '' && <span class="alert-text">{String(entry.value)}</span>}
          <span class="muted">
            {[typeof entry.step === 'number' && `${(entry.kind !== 'alert' && entry.event) || 'step'} ${number(entry.step, 12)}`, whoOf(entry), typeof entry.wall_time === 'number' && dateTime(entry.wall_time)].filter(Boolean).join(' · ')}
          </span>
          {entry.error && <span class="field-problem">{entry.error}</span>}
        </li>
      ))}
    </ol>
  )
}

/** The client that sent it, if the run knows. */
const whoOf = ({ client }: HistoryEntry): string => (client ? `by ${client}` : '')

function Outcome({ entry: { kind, old, value: set, result, error } }: { entry: HistoryEntry }) {
  if (error) return <span class="command-failed">failed</span>
  if (kind === 'set') {
    return (
      <>
        {old !== undefined && old !== null && <span class="muted">{value(old)} → </span>}
        <b>{value(set)}</b>
      </>
    )
  }
  return kind === 'call' && result !== null && result !== undefined ? <b>{value(result)}</b> : null
}
