// Equal runs in a new list keep their old objects, so that only changed runs are redrawn.

import type { Run } from './types'

const written = new WeakMap<object, string>()

function textOf(value: object): string {
  let text = written.get(value)
  if (text === undefined) written.set(value, (text = JSON.stringify(value)))
  return text
}

/** The fresh runs, each as the old object where it is the same; else its config, where that is. */
export function reuseEqual(old: readonly Run[] | null, fresh: readonly Run[]): Run[] {
  const before = new Map((old ?? []).map((run) => [run.key, run]))
  return fresh.map((run) => {
    const known = before.get(run.key)
    if (!known) return run
    if (textOf(known) === textOf(run)) return known
    return textOf(known.config) === textOf(run.config) ? { ...run, config: known.config } : run
  })
}
