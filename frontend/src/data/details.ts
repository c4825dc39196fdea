// Everything about a run: its description, streams and history. Fetched while a component shows it.

import { batch, effect, signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { get, messageOf, runPath } from './api'
import { fetchInParts } from './parts'
import { byKey, shown } from './runs'
import type { HistoryEntry, RunDetail } from './types'

const REFRESH_MS = 2_000
const HISTORY_MS = 5_000
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

/** The details of a run, refreshed while the run lives. */
export function useDetail(key: string): { detail: Known | null; problem: string | null } {
  useEffect(() => {
    if (!key) return
    void loadDetail(key)
    const timer = setInterval(() => {
      if (!document.hidden && byKey.peek().get(key)?.live) void loadDetail(key)
    }, REFRESH_MS)
    return () => clearInterval(timer)
  }, [key])
  return { detail: details.value.get(key) ?? null, problem: detailProblems.value.get(key) ?? null }
}

/** Fetch the histories of the visible runs: once for recorded ones, repeatedly for live ones. */
export function followHistories(): void {
  const asked = new Map<string, boolean>()
  const queue: string[] = []
  let busy = false
  const drain = async () => {
    if (busy) return
    busy = true
    while (queue.length) await fetchInParts(queue, N_AT_ONCE, fetchDetail, takeIn)
    busy = false
  }
  effect(() => {
    // A run that has just ended has a last word.
    const fresh = shown.value.filter((run) => asked.get(run.key) !== run.live)
    for (const run of fresh) asked.set(run.key, run.live)
    queue.push(...fresh.map((run) => run.key))
    void drain()
  })
  setInterval(() => {
    if (document.hidden || queue.length) return
    queue.push(...shown.peek().filter((run) => run.live).map((run) => run.key))
    void drain()
  }, HISTORY_MS)
}
