// A live series grows at its end: only new points are fetched, until the whole series is thinned again.

import type { Scalars } from './types'

const COLUMNS = ['x', 'y', 'wall', 'step'] as const

/** Append the points from the last x on; the overlap counts once. */
export function extended(old: Scalars, tail: Scalars): Scalars {
  const last = old.x[old.x.length - 1] ?? -Infinity
  let from = 0
  while (from < tail.x.length && tail.x[from]! <= last) from++
  if (from === tail.x.length) return old
  const joined = Object.fromEntries(
    COLUMNS.map((name) => {
      const column = new Float64Array(old.x.length + tail.x.length - from)
      column.set(old[name])
      column.set(tail[name].subarray(from), old.x.length)
      return [name, column]
    }),
  ) as Pick<Scalars, (typeof COLUMNS)[number]>
  return { ...joined, n: old.n + tail.n - from, thinned: old.thinned || tail.thinned }
}
