// Which runs grow: the server looks at the files of the runs that this page shows, and sends what changed.
// What is fetched from a run is fetched again when the run's version is another one.

import { computed, effect, signal } from '@preact/signals'
import { useEffect, useMemo } from 'preact/hooks'
import { fetchInParts } from './parts'
import { repeated } from './repeated'
import { byKey, shown, socket } from './runs'
import type { Run } from './types'

/** How many parts of the page show a run. */
const users = new Map<string, number>()
const counted = signal(0)

function count(run: string, by: number): void {
  const n = (users.get(run) ?? 0) + by
  if (n > 0) users.set(run, n)
  else users.delete(run)
  queueMicrotask(() => counted.value++)
}

/** A text that changes with what is recorded of a run, and when news may have been missed. */
export const versionOf = (run: Run | undefined): string => `${run?.version ?? ''} ${socket.returns.value}`

/** The same, and of what a live run says of itself. */
export const stateOf = (run: Run | undefined): string => `${versionOf(run)} ${run?.described ?? ''} ${run?.live ?? ''}`

/** Have the server watch a run while a component shows it. */
export function useWatched(run: string): void {
  useEffect(() => {
    if (!run) return
    count(run, 1)
    return () => count(run, -1)
  }, [run])
}

/** The version of a run, which the server watches while the component is there. */
export function useVersion(run: string): string {
  useWatched(run)
  return useMemo(() => computed(() => versionOf(byKey.value.get(run))), [run]).value
}

/** Tell the server which runs the page shows. */
export function followGrowth(): void {
  effect(() => {
    counted.value
    socket.watch([...new Set([...users.keys(), ...shown.value.map((run) => run.key)])])
  })
}

interface Following<Answer> {
  /** A text that changes when there is news of a run; null if there is nothing to fetch. */
  news: (run: Run) => string | null
  fetch: (run: string) => Promise<Answer>
  takeIn: (answers: Answer[]) => void
  n_at_once: number
  rest_ms: number
}

/** Fetch something of each visible run: at once when it is first shown, and when there is news, with a rest between. */
export function followShown<Answer>({ news, fetch, takeIn, n_at_once, rest_ms }: Following<Answer>): void {
  const asked = new Map<string, string | null>()
  const queue: string[] = []
  let busy = false
  const drain = async () => {
    if (busy) return
    busy = true
    while (queue.length) await fetchInParts(queue, n_at_once, fetch, takeIn)
    busy = false
  }
  const push = (runs: readonly Run[]) => {
    for (const run of runs) asked.set(run.key, news(run))
    queue.push(...runs.map((run) => run.key))
  }
  const stale = (run: Run) => news(run) !== null && asked.get(run.key) !== news(run)
  const again = repeated(() => (push(shown.peek().filter(stale)), drain()), rest_ms)
  effect(() => {
    push(shown.value.filter((run) => stale(run) && !asked.has(run.key)))
    void drain()
    if (shown.value.some(stale)) again.tell()
  })
}
