// What a number was before a step and from it on.

import type { Numbers } from '../../views/records'

/** Records on each side: enough for a mean, and near enough to the command to show what it did. */
const N = 50

export interface Side {
  n: number
  mean: number
}

/** Return the means of the records next to a step, at most 50 on each side; null for a side without any. NaN and ∞ do not count. */
export function around({ step, y }: Pick<Numbers, 'step' | 'y'>, at: number): { before: Side | null; after: Side | null } {
  const finite = [...y.keys()].filter((i) => Number.isFinite(y[i]!))
  const sides = [finite.filter((i) => step[i]! < at).slice(-N), finite.filter((i) => step[i]! >= at).slice(0, N)]
  const [before, after] = sides.map((rows) => (rows.length ? { n: rows.length, mean: rows.reduce((sum, i) => sum + y[i]!, 0) / rows.length } : null))
  return { before: before!, after: after! }
}
