// Which runs grow: the server looks at the files of the runs that this page shows, and sends what changed.
// What is fetched from a run is fetched again when the run's version is another one.

import { computed, effect, signal } from '@preact/signals'
import { useEffect, useMemo } from 'preact/hooks'
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

/** Have the server watch a run until the function is called that this returns. */
export function watch(run: string): () => void {
  count(run, 1)
  return () => count(run, -1)
}

/** Have the server watch a run while a component shows it. */
export function useWatched(run: string): void {
  useEffect(() => (run ? watch(run) : undefined), [run])
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
