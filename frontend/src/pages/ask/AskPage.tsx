// Ask a run anything: every query becomes a panel, and stands in the URL.

import { computed } from '@preact/signals'
import { useState } from 'preact/hooks'
import { useDetail } from '../../data/details'
import { byKey, labelOf, live, runs } from '../../data/runs'
import type { Run } from '../../data/types'
import { at, state, update } from '../../state/state'
import { Empty } from '../../ui/parts'
import { visible } from '../../views/visible'
import { StateDot } from '../../run/StateDot'
import { AskPanel } from './AskPanel'
import { suggestions } from './suggestions'
import { isPattern, membersOf, patternOf } from './fleet'
import { panelOf, readPanel, writePanel, type AskedPanel } from './panels'
import { QueryBox, type Asking } from './QueryBox'

/** The pattern in the URL, if several runs are asked. */
const askedPattern = computed(() => (isPattern(at.asked.value) ? at.asked.value : null))

/** The run to query: the one in the URL, or the live one whose details are open, or the newest live one, or the newest.
 * Of a pattern it is the newest, which says for all what can be asked. */
export const askedRun = computed(() => {
  const all = runs.value ?? []
  const detailed = live.value.find((run) => run.key === at.run.value)
  const named = askedPattern.value ? membersOf(askedPattern.value, live.value).at(-1) : all.find((run) => run.key === at.asked.value)
  return named ?? detailed ?? live.value[0] ?? all[0] ?? null
})

const panels = computed(() => at.ask.value.flatMap((text) => readPanel(text) ?? []))
const setPanels = (next: readonly AskedPanel[]): void => update({ ask: next.map(writePanel) })

/** Ask a run from elsewhere on the page. */
export function askIn(run: string, query: string): void {
  update({ asked: run, ask: [writePanel(panelOf(run, query)), ...state.peek().ask] }, { page: 'ask' })
}

export function AskPage() {
  const run = askedRun.value
  const { detail, problem } = useDetail(run?.key ?? '')
  const [text, setText] = useState('')
  const all = panels.value
  if (runs.value === null) return <p class="chart-empty">Looking for runs …</p>
  if (!run) {
    return (
      <Empty title="No run to ask">
        <p>Start a training with Sightglass, then query it here while it runs:</p>
        <pre>{'import sightglass as sg\n\nwith sg.init("mnist") as run:\n    for step, batch in enumerate(batches):\n        loss = train(batch)\n        run.observe("batch", step=step, loss=loss)'}</pre>
      </Empty>
    )
  }
  const ask = (query: string, { beside }: Asking) => {
    const asked = askedPattern.peek() ?? run.key
    update({ asked })
    const [first, ...rest] = panels.peek()
    const stream = { run: asked, query, second: false }
    if (beside && first) setPanels([{ ...first, streams: [...first.streams, stream] }, ...rest])
    else setPanels([panelOf(asked, query), ...panels.peek()])
  }
  const change = (i: number, panel: AskedPanel | null) => setPanels(panels.peek().flatMap((one, j) => (j !== i ? [one] : panel ? [panel] : [])))
  const n_loose = all.filter(({ pinned }) => !pinned).length
  return (
    <section class="ask" aria-label="Ask">
      <div class="ask-head">
        <RunSelect patterns />
        <QueryBox id="ask" run={run.key} text={text} button="Ask" hotkey="q" onText={setText} onAsk={ask} />
        {problem && <p class="field-problem">{problem}</p>}
        <div class="offers">
          {detail?.description && <Offers queries={suggestions(detail.description)} title="Try" onPick={setText} onAsk={(query) => ask(query, { beside: false })} />}
          {n_loose > 1 && (
            <button type="button" class="text-button offers-drop" onClick={() => setPanels(all.filter(({ pinned }) => pinned))}>
              Remove {n_loose === all.length ? 'all' : `${n_loose} that are not pinned`}
            </button>
          )}
        </div>
      </div>
      {[...new Set(all.flatMap(({ streams }) => streams.map((one) => one.run)))].filter((key) => key !== run.key && byKey.value.get(key)?.live).map((key) => (
        <Follow key={key} run={key} />
      ))}
      {all.length === 0 ? (
        <Empty title={`Ask ${askedPattern.value ?? run.name} anything`}>
          <p>
            Type a query, or pick one above. The training itself answers it while it runs. Nothing is computed, copied or stored before you ask
            or after you close the page.
          </p>
        </Empty>
      ) : (
        <div class="ask-panels">
          {keyed(all).map(([key, panel], i) => (
            <AskPanel key={key} panel={panel} onChange={(next) => change(i, next)} onEdit={setText} />
          ))}
        </div>
      )}
    </section>
  )
}

/** A panel is known by its first stream, and by how many like it stand before. */
function keyed(all: readonly AskedPanel[]): [string, AskedPanel][] {
  const seen = new Map<string, number>()
  return [...all].reverse().map((panel): [string, AskedPanel] => {
    const { run, query } = panel.streams[0]!
    const n = seen.get(`${run}|${query}`) ?? 0
    seen.set(`${run}|${query}`, n + 1)
    return [`${run}|${query}|${n}`, panel]
  }).reverse()
}

/** Keeps the details of a run fresh for the panels that query it. */
function Follow({ run }: { run: string }) {
  useDetail(run)
  return null
}

/** Chooses a run; with `patterns` also several, by their names. `left` is one that is still shown, and has left the list. */
export function RunSelect({ patterns = false, left = null }: { patterns?: boolean; left?: Run | null }) {
  const run = left ?? askedRun.value
  const all = runs.value ?? []
  const pattern = patterns ? askedPattern.value : null
  const over = all.filter((one) => !one.live)
  const options = (some: readonly Run[]) =>
    some.map((one) => (
      <option key={one.key} value={one.key}>
        {labelOf(one.key)} · {one.state}
      </option>
    ))
  return (
    <div class="run-select">
      {run && !left && pattern === null && <StateDot state={run.state} why={run.why} problem={run.problem} />}
      <select aria-label="Run" value={pattern ?? run?.key} onChange={({ currentTarget }) => update({ asked: currentTarget.value })}>
        {left && <option value={left.key}>{visible(left.name)} · stopped, recorded nothing</option>}
        {live.value.length > 0 && <optgroup label="Live">{options(live.value)}</optgroup>}
        {(pattern !== null || (patterns && live.value.length > 0)) && <option value={pattern ?? '*'}>Several live runs …</option>}
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
          update({ asked: patternOf(currentTarget.value) })
        }}
      />
      <span class="muted" role="status">
        {n} live
      </span>
    </>
  )
}

function Offers({ queries, title, onPick, onAsk }: { queries: readonly string[]; title: string; onPick: (text: string) => void; onAsk: (text: string) => void }) {
  return (
    <>
      <span class="muted">{title}</span>
      {queries.map((query) => (
        <button key={query} type="button" class="chip" title={`Ask ${query}; with Shift put it into the box`} onClick={(event) => (event.shiftKey ? onPick : onAsk)(query)}>
          <code>{query}</code>
        </button>
      ))}
    </>
  )
}
