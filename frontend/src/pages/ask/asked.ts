// What is asked: the run or the runs, and the cards with their queries. All of it stands in the URL.

import { computed, signal } from '@preact/signals'
import { live, runs } from '../../data/runs'
import { at, state, update } from '../../state/state'
import { isPattern, membersOf } from './fleet'
import { panelOf, readPanel, writePanel, type AskedPanel } from './panels'

/** What stands in the box. */
export const draft = signal('')

/** The pattern in the URL, if several runs are asked. */
export const askedPattern = computed(() => (isPattern(at.asked.value) ? at.asked.value : null))

/** The run to query: the one in the URL, or the live one whose details are open, or the newest live one, or the newest.
 * Of a pattern it is the newest, which says for all what can be asked. */
export const askedRun = computed(() => {
  const all = runs.value ?? []
  const detailed = live.value.find((run) => run.key === at.run.value)
  const named = askedPattern.value ? membersOf(askedPattern.value, live.value).at(-1) : all.find((run) => run.key === at.asked.value)
  return named ?? detailed ?? live.value[0] ?? all[0] ?? null
})

export const panels = computed(() => at.ask.value.flatMap((text) => readPanel(text) ?? []))

/** Ask a run, or the runs of a pattern: the answer is the first card of the charts, or joins the card that is there. */
export function ask(run: string, query: string, { beside = false } = {}): void {
  const [first, ...rest] = panels.peek()
  const stream = { run, query, second: false }
  const isSame = ({ streams }: AskedPanel) => streams.length === 1 && streams[0]!.run === run && streams[0]!.query === query
  const [same, others] = [panels.peek().find(isSame), panels.peek().filter((panel) => !isSame(panel))]
  const next = beside && first ? [{ ...first, streams: [...first.streams, stream] }, ...rest] : [same ?? panelOf(run, query), ...others]
  update({ asked: run, ask: next.map(writePanel) }, { page: 'charts' })
}

/** Put another panel in the place of one, or remove it. */
export function change(i: number, panel: AskedPanel | null): void {
  update({ ask: panels.peek().flatMap((one, j) => (j !== i ? [one] : panel ? [panel] : [])).map(writePanel) })
}

/** Remove the panels that are not pinned. */
export function removeLoose(): void {
  update({ ask: panels.peek().filter(({ pinned }) => pinned).map(writePanel) })
}

/** Choose the run, or the pattern of names, that is asked. */
export const choose = (asked: string): void => {
  if (asked !== state.peek().asked) update({ asked })
}
