// The columns of a line as charts need them: in the order of x. Only what came since is looked at, so that a million
// points cost as much as the few that join them.

import type { Records } from './records'

/** The columns of a line as they came. */
export interface Plain {
  /** The places of the points, before `origin` is subtracted. */
  x: Float64Array
  origin: number
  /** One column, or the low end, the middle and the high end of a band. */
  values: Float64Array[]
  /** Another number whenever columns were thinned. */
  n_thinned: number
}

export interface Prepared {
  x: Float64Array
  values: Float64Array[]
}

/** A column that grows. */
class Growing {
  private data = new Float64Array(1024)

  /** Grow to `n` entries, and keep the present ones. */
  room(n: number): Float64Array {
    if (n > this.data.length) {
      const next = new Float64Array(Math.max(n, 2 * this.data.length))
      next.set(this.data)
      this.data = next
    }
    return this.data.subarray(0, n)
  }
}

interface Kept {
  key: string
  n_thinned: number
  /** How many points are in order. */
  n: number
  x: Growing
}

const known = new WeakMap<Records, Map<string, Kept>>()
const sorted = new WeakMap<Records, Map<string, { key: string; made: Prepared }>>()

/** Prepare a line of records; `x` names the column of x. */
export function prepared(records: Records, name: string, x: string, plain: Plain): Prepared {
  const key = `${x} ${plain.origin} ${plain.values.length}`
  const kept = tidied(records, name, key, plain)
  if (!kept) return inOrder(records, name, `${key} ${records.version}`, plain)
  const [from, n] = [kept.n, plain.x.length]
  const places = plain.origin === 0 ? plain.x : kept.x.room(n)
  if (plain.origin !== 0) for (let i = from; i < n; i++) places[i] = plain.x[i]! - plain.origin
  kept.n = n
  return { x: places, values: plain.values }
}

/** The earlier result, if the new points follow the old ones in order; else null. */
function tidied(records: Records, name: string, key: string, { x, n_thinned }: Plain): Kept | null {
  let all = known.get(records)
  if (!all) known.set(records, (all = new Map()))
  let kept = all.get(name)
  if (!kept || kept.key !== key || kept.n_thinned !== n_thinned || kept.n > x.length) {
    kept = { key, n_thinned, n: 0, x: new Growing() }
    all.set(name, kept)
  }
  for (let i = kept.n; i < x.length; i++) {
    const at = x[i]!
    if (at - at !== 0 || (i > 0 && at < x[i - 1]!)) return null
  }
  return kept
}

function inOrder(records: Records, name: string, key: string, plain: Plain): Prepared {
  let all = sorted.get(records)
  if (!all) sorted.set(records, (all = new Map()))
  const found = all.get(name)
  if (found?.key === key) return found.made
  const places = orderOf(plain.x)
  const column = (one: Float64Array) => Float64Array.from(places, (i) => one[i]!)
  const made = { x: Float64Array.from(places, (i) => plain.x[i]! - plain.origin), values: plain.values.map(column) }
  all.set(name, { key, made })
  return made
}

/** The order by x, without what has no place there. */
function orderOf(x: Float64Array): number[] {
  const places: number[] = []
  for (let i = 0; i < x.length; i++) if (Number.isFinite(x[i]!)) places.push(i)
  return places.sort((a, b) => x[a]! - x[b]! || a - b)
}
