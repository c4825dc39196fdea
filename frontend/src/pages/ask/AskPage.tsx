// Ask a run anything: every query becomes a panel, and stands in the URL.

import { computed } from '@preact/signals'
import { useState } from 'preact/hooks'
import { useDetail } from '../../data/details'
import { runs } from '../../data/runs'
import type { Description } from '../../data/types'
import { at, state, update } from '../../state/state'
import { Empty } from '../../ui/parts'
import { StateDot } from '../runs/StateDot'
import { AskPanel } from './AskPanel'
import { suggestions } from './complete'
import { readAsked, writeAsked, type Asked } from './panels'
import { QueryBox } from './QueryBox'

/** The run that is asked: the one of the URL, else the newest live one, else the newest. */
export const askedRun = computed(() => {
  const all = runs.value ?? []
  return all.find((run) => run.key === at.asked.value) ?? all.find((run) => run.live) ?? all[0] ?? null
})

export function AskPage() {
  const run = askedRun.value
  const { detail, problem } = useDetail(run?.key ?? '')
  const [text, setText] = useState('')
  const panels = at.ask.value
  if (!run) {
    return (
      <Empty title="There is no run to ask">
        <p>Start a training with sightglass, and ask it here while it runs.</p>
      </Empty>
    )
  }
  const ask = (query: string) => {
    update({ asked: run.key, ask: [writeAsked({ run: run.key, view: '', query }), ...state.peek().ask] })
    setText('')
  }
  const change = (i: number, asked: Asked | null) => update({ ask: panels.flatMap((one, j) => (j !== i ? one : asked ? writeAsked(asked) : [])) })
  return (
    <section class="ask" aria-label="Ask">
      <div class="ask-head">
        <RunSelect />
        <QueryBox run={run.key} text={text} description={detail?.description ?? null} onText={setText} onAsk={ask} />
        {problem && <p class="field-problem">{problem}</p>}
        {detail?.description && <Offers description={detail.description} onPick={setText} onAsk={ask} />}
      </div>
      {panels.length === 0 ? (
        <Empty title={`Ask ${run.name} anything`}>
          <p>
            Type a query, or pick one above. It is answered by the training itself while it runs; nothing is computed, copied or stored until you
            ask, and no longer than you look.
          </p>
        </Empty>
      ) : (
        <div class="ask-panels">
          {panels.map((one, i) => {
            const asked = readAsked(one)
            return asked && <AskPanel key={`${asked.run}|${asked.query}|${panels.slice(0, i).filter((other) => other === one).length}`} asked={asked} onChange={(now) => change(i, now)} onEdit={() => setText(asked.query)} />
          })}
        </div>
      )}
    </section>
  )
}

export function RunSelect({ liveOnly = false }: { liveOnly?: boolean }) {
  const run = askedRun.value
  const all = (runs.value ?? []).filter((one) => one.live || !liveOnly)
  return (
    <label class="run-select">
      {run && <StateDot state={run.state} problem={run.problem} />}
      <select aria-label="Run" value={run?.key} onChange={({ currentTarget }) => update({ asked: currentTarget.value })}>
        {all.map((one) => (
          <option key={one.key} value={one.key}>
            {one.name} · {one.state}
          </option>
        ))}
      </select>
    </label>
  )
}

function Offers({ description, onPick, onAsk }: { description: Description; onPick: (text: string) => void; onAsk: (text: string) => void }) {
  return (
    <div class="offers">
      <span class="muted">Try</span>
      {suggestions(description).map((query) => (
        <button key={query} type="button" class="chip" title="Ask this; with Shift put it into the box" onClick={(event) => (event.shiftKey ? onPick : onAsk)(query)}>
          <code>{query}</code>
        </button>
      ))}
    </div>
  )
}
