// Everything about a run: its description, streams and history. Fetched while a component shows it.

import { batch, signal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { get, messageOf, runPath } from './api'
import { followShown, stateOf, useWatched } from './growth'
import { repeated, type Repeated } from './repeated'
import { byKey } from './runs'
import type { HistoryEntry, RunDetail } from './types'

/** The run is asked for its description each time, so it rests between two. */
const REST_MS = 2_000
const HISTORY_REST_MS = 5_000
const N_AT_ONCE = 2
const MIN_SPAN_S = 0.5

export interface Known extends RunDetail {
  /** The share of the run's time that its queries take now. */
  share: number | null
}

export const details = signal<ReadonlyMap<string, Known>>(new Map())
export const detailProblems = signal<ReadonlyMap<string, string>>(new Map())
export const histories = signal<ReadonlyMap<string, HistoryEntry[]>>(new Map())

/** The share of its time that a run spent on queries between two descriptions; null while unknown. */
export function shareOf(before: Known | undefined, now: RunDetail): number | null {
  if (!before?.description || !now.description) return null
  const elapsed_s = now.description.wall_time - before.description.wall_time
  if (elapsed_s < MIN_SPAN_S) return before.share
  const spent = new Map(before.streams.map(({ stream, spent_s }) => [stream, spent_s]))
  const spent_s = now.streams.reduce((sum, stream) => sum + Math.max(0, stream.spent_s - (spent.get(stream.stream) ?? 0)), 0)
  return spent_s / elapsed_s
}

type Answer = { key: string; detail: RunDetail } | { key: string; problem: string }

async function fetchDetail(key: string): Promise<Answer> {
  try {
    return { key, detail: await get<RunDetail>(runPath(key)) }
  } catch (error) {
    return { key, problem: messageOf(error) }
  }
}

function takeIn(answers: readonly Answer[]): void {
  const [known, entries, problems] = [new Map(details.peek()), new Map(histories.peek()), new Map(detailProblems.peek())]
  for (const answer of answers) {
    const { key } = answer
    if ('problem' in answer) problems.set(key, answer.problem)
    else {
      problems.delete(key)
      entries.set(key, answer.detail.history)
      known.set(key, { ...answer.detail, share: shareOf(known.get(key), answer.detail) })
    }
  }
  batch(() => {
    details.value = known
    histories.value = entries
    detailProblems.value = problems
  })
}

export async function loadDetail(key: string): Promise<void> {
  takeIn([await fetchDetail(key)])
}

/** The details of a run. */
export function useDetail(key: string): { detail: Known | null; problem: string | null } {
  const loading = useRef<Repeated | null>(null)
  useWatched(key)
  useEffect(() => {
    if (!key) return
    const mine = repeated(() => loadDetail(key), REST_MS)
    loading.current = mine
    return mine.stop
  }, [key])
  useEffect(() => loading.current?.tell(), [key, stateOf(byKey.value.get(key))])
  return { detail: details.value.get(key) ?? null, problem: detailProblems.value.get(key) ?? null }
}

/** Keep the histories of visible runs up to date: other programs' files have none. */
export const followHistories = (): void =>
  followShown({ news: (run) => (run.source === 'sightglass' ? stateOf(run) : ''), fetch: fetchDetail, takeIn, n_at_once: N_AT_ONCE, rest_ms: HISTORY_REST_MS })
