// A live series grows at its end: only new points are fetched, until the whole series is thinned again.

import type { Scalars } from './types'

const COLUMNS = ['x', 'y', 'wall', 'step', 'mean'] as const

/** Append the points that came after a series; a reply that has all of them takes its place. */
export function extended(old: Scalars, tail: Scalars): Scalars {
  if (!tail.continued) return tail
  if (!tail.x.length) return old.n_pending === tail.n_pending ? old : { ...old, n_pending: tail.n_pending }
  const joined = Object.fromEntries(
    COLUMNS.map((name) => {
      const column = new Float64Array(old.x.length + tail.x.length).fill(NaN)
      column.set(old[name] ?? [])
      column.set(tail[name] ?? [], old.x.length)
      return [name, column]
    }),
  ) as Pick<Scalars, (typeof COLUMNS)[number]>
  const integers = new Map([...(old.integers ?? []), ...Array.from(tail.integers ?? [], ([i, digits]) => [old.x.length + i, digits] as const)])
  // The newest part is the last one: it goes on.
  const parts = old.parts.map((part, i) => (i === old.parts.length - 1 ? { ...part, end: joined.x.length } : part))
  return { ...joined, ...(integers.size && { integers }), n: old.n + tail.n, thinned: old.thinned || tail.thinned, parts, restarts: tail.restarts, tracks: tail.tracks, cursor: tail.cursor, continued: old.continued, n_pending: tail.n_pending }
}
