// What a control or an action moves: a question of the reader's choice beside it, with its commands marked.

import { useStreams } from '../../data/stream'
import type { Description, HistoryEntry, Run } from '../../data/types'
import { at, update } from '../../state/state'
import { number } from '../../views/format'
import { AskPanel } from '../ask/AskPanel'
import { commandText } from '../charts/history'
import { panelOf, readPanel, writePanel, type AskedPanel } from '../ask/panels'
import { suggestions } from '../ask/suggestions'
import { around } from './around'

interface EffectProps {
  run: Run
  /** The control or action. */
  name: string
  description: Description
  history: readonly HistoryEntry[]
}

export function Effect({ run, name, description, history }: EffectProps) {
  const offered = suggestions(description)
  const kept = at.moves.value.find(([knob]) => knob === name)?.[1]
  const chosen = kept === undefined ? null : readPanel(`${run.key}${kept}`)
  const panel = chosen ?? (offered[0] === undefined ? null : panelOf(run.key, offered[0]))
  if (!panel) return null
  const query = panel.streams[0]!.query
  const change = (next: AskedPanel | null) => {
    const others = at.moves.peek().filter(([knob]) => knob !== name)
    update({ moves: next ? [...others, [name, writePanel(next).slice(run.key.length)]] : others }) // of whichever run is looked at
  }
  return (
    <div class="card effect">
      <div class="card-head">
        <h2>
          What <bdi>{name}</bdi> moves
        </h2>
        <select aria-label={`What ${name} moves`} value={query} onChange={({ currentTarget }) => change(panelOf(run.key, currentTarget.value))}>
          {[...new Set([query, ...offered])].map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </div>
      <AskPanel key={name} panel={panel} only={name} onChange={change} />
      <Moved run={run.key} query={query} last={[...history].reverse().find((entry) => entry.name === name && !entry.error)} />
    </div>
  )
}

/** The mean before and after the last command. */
function Moved({ run, query, last }: { run: string; query: string; last: HistoryEntry | undefined }) {
  const [stream] = useStreams([{ run, query }])
  if (!last || last.step === null || last.step === undefined) return <p class="muted">Its commands are marked here once there are any.</p>
  const { before, after } = (stream!.version.value, around(stream!.records.numbers, Number(last.step)))
  const { shown } = stream!.records
  const what = shown && shown.n_shown < shown.n_made ? 'drawn points' : 'records' // of long runs extremes are kept
  return (
    <p class="muted" role="status">
      {commandText(last)} at step {number(Number(last.step), 12)}
      {before && after && (
        <>
          : mean of {before.n} {what} before it <b>{number(before.mean, 4)}</b>, of {after.n} after it <b>{number(after.mean, 4)}</b>
        </>
      )}
    </p>
  )
}
