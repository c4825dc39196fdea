// What was done to a run, newest first: what, at which event, when, and what came of it.

import type { Act } from '../../data/types'
import { dateTime, number, value } from '../../views/format'

export function History({ acts }: { acts: readonly Act[] }) {
  if (acts.length === 0) return <p class="muted">Nothing yet.</p>
  return (
    <ol class="acts">
      {[...acts].reverse().map((act) => (
        <li key={`${act.wall_time} ${act.kind} ${act.name}`}>
          <span class="acts-what">
            {act.kind} {act.name} <Outcome act={act} />
          </span>
          <span class="muted">
            {[typeof act.step === 'number' && `${act.event || 'step'} ${number(act.step, 12)}`, whoOf(act), typeof act.wall_time === 'number' && dateTime(act.wall_time)].filter(Boolean).join(' · ')}
          </span>
          {act.error && <span class="field-problem">{act.error}</span>}
        </li>
      ))}
    </ol>
  )
}

/** Who asked for it, where the run tells. */
const whoOf = ({ client }: Act): string => (client ? `by ${client}` : '')

function Outcome({ act: { kind, old, value: set, result, error } }: { act: Act }) {
  if (error) return <span class="acts-bad">failed</span>
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
