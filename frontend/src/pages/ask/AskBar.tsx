// Ask a run anything, from every page: the box under the header. The answer is the first card among the charts.

import { useState } from 'preact/hooks'
import { details, useDetail } from '../../data/details'
import { labelOf, live, runs } from '../../data/runs'
import type { Run } from '../../data/types'
import { StateDot } from '../../run/StateDot'
import { ask, askedPattern, askedRun, choose, draft, panels } from './asked'
import { membersOf, patternOf } from './fleet'
import { QueryBox, type Asking } from './QueryBox'
import { suggestions } from './suggestions'

export function AskBar() {
  const run = askedRun.value
  const description = details.of(run?.key ?? '')?.description
  const offers = run?.live && description ? suggestions(description) : []
  const { problem } = useDetail(run?.live && offers.length === 0 ? run.key : '') // until it is known what can be asked
  const [fresh, setFresh] = useState(false)
  if (!run) return null
  const of = askedPattern.value ?? run.key
  const asks = (query: string, how: Partial<Asking> = {}) => {
    setFresh(false)
    ask(of, query, how)
  }
  return (
    <section class={`ask-bar ${panels.value.length > 0 ? 'is-asked' : ''} ${fresh ? 'is-fresh' : ''}`} aria-label="Ask" onFocusIn={() => setFresh(true)}>
      <RunSelect run={run} />
      <QueryBox
        id="ask"
        run={run.key}
        text={draft.value}
        button="Ask"
        hotkey="q"
        placeholder={`Ask ${askedPattern.value ?? labelOf(run.key)} anything: batch.loss.mean(every=100)`}
        onText={(text) => (draft.value = text)}
        onAsk={asks}
      />
      {problem && <p class="field-problem">{problem}</p>}
      {offers.length > 0 && !draft.value && <Offers queries={offers} onAsk={asks} />}
    </section>
  )
}

/** Chooses a run, or several by their names. */
function RunSelect({ run }: { run: Run }) {
  const all = runs.value ?? []
  const pattern = askedPattern.value
  const over = all.filter((one) => !one.live)
  const options = (some: readonly Run[]) =>
    some.map((one) => (
      <option key={one.key} value={one.key}>
        {labelOf(one.key)} · {one.state}
      </option>
    ))
  return (
    <div class="run-select">
      {pattern === null && <StateDot state={run.state} why={run.why} problem={run.problem} />}
      <select aria-label="Run" title="The run that is asked" value={pattern ?? run.key} onChange={({ currentTarget }) => choose(currentTarget.value)}>
        {live.value.length > 0 && <optgroup label="Live">{options(live.value)}</optgroup>}
        {(pattern !== null || live.value.length > 0) && <option value={pattern ?? '*'}>Several live runs …</option>}
        {over.length > 0 && <optgroup label="Recorded">{options(over)}</optgroup>}
      </select>
      {pattern !== null && <PatternBox pattern={pattern} />}
    </div>
  )
}

/** The names of the runs; kept as a draft until Enter or leaving the field. */
function PatternBox({ pattern }: { pattern: string }) {
  const [draft, setDraft] = useState<string | null>(null)
  const n = membersOf(patternOf(draft ?? pattern), live.value).length
  return (
    <>
      <input
        class="run-pattern"
        aria-label="Names of the runs"
        title="* stands for any characters: sweep-*. Runs that begin later join"
        spellcheck={false}
        autocomplete="off"
        value={draft ?? pattern}
        onInput={({ currentTarget }) => setDraft(currentTarget.value)}
        onBlur={() => setDraft(null)}
        onChange={({ currentTarget }) => {
          setDraft(null)
          choose(patternOf(currentTarget.value))
        }}
      />
      <span class="muted" role="status">
        {n} live
      </span>
    </>
  )
}

function Offers({ queries, onAsk }: { queries: readonly string[]; onAsk: (text: string) => void }) {
  return (
    <div class="offers">
      <span class="muted">Try</span>
      {queries.map((query) => (
        <button key={query} type="button" class="chip" title={`Ask ${query}; with Shift put it into the box`} onClick={(event) => (event.shiftKey ? (draft.value = query) : onAsk(query))}>
          <code>{query}</code>
        </button>
      ))}
    </div>
  )
}
