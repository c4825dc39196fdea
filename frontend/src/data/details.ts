// Everything about a run: its description, streams and history.

import { stateOf } from './growth'
import { RunResource, useOneResource } from './runResource'
import type { Run, RunDetail } from './types'

const MIN_SPAN_S = 0.5

export interface Known extends RunDetail {
  /** The share of the run's time that its queries take now. */
  share: number | null
}

/** The share of its time that a run spent on queries between two descriptions; null while unknown. */
export function shareOf(before: Known | undefined, now: RunDetail): number | null {
  if (!before?.description || !now.description) return null
  const elapsed_s = now.description.wall_time - before.description.wall_time
  if (elapsed_s < MIN_SPAN_S) return before.share
  const spent = new Map(before.streams.map(({ stream, spent_s }) => [stream, spent_s]))
  const spent_s = now.streams.reduce((sum, stream) => sum + Math.max(0, stream.spent_s - (spent.get(stream.stream) ?? 0)), 0)
  return spent_s / elapsed_s
}

/** A live run is asked for its description each time, so the rests are long. Other programs' files have no history. */
export const details = new RunResource<RunDetail, Known>({
  path: '',
  news: stateOf,
  keep: (detail, before) => ({ ...detail, share: shareOf(before, detail) }),
  n_at_once: 2,
  rest_ms: 2_000,
  drawn: { only: ({ source }) => source === 'sightglass', rest_ms: 5_000 },
})

/** How a run is: the details know more, until its state is another one. */
export const sentenceOf = (run: Run, detail: Known | null): string => (detail?.state === run.state ? detail.sentence : run.sentence)

/** The details of a run, or of none. */
export const useDetail = (run: string): { detail: Known | null; problem: string | null } => {
  const { value: detail, problem } = useOneResource(details, run)
  return { detail, problem }
}
