// The passes of a line: where its run begins again, or its steps go back. The same rules as `views/passes.py`.

import { lowerBound } from './bounds'

/** Rows of a line, from one on to before another. */
export interface Rows {
  start: number
  end: number
}

/** A part of a pass, drawn by itself. */
export interface PassPart extends Rows {
  /** The place of its pass among all. */
  pass: number
  alpha: number
}

/** Records of a pass; with fewer, the records came out of order. */
const MIN_MEAN_LENGTH = 4
/** As many as lines of a view; more are disorder too. */
const MAX_PARTS = 64

/** How strong a frame or a pass is drawn: the newest in full, the oldest faint. */
export const fading = (age: number, n: number): number => (age === 0 ? 1 : 0.12 + 0.38 * (1 - age / n))

/**
 * The rows of each pass, the oldest first; null if the records came out of order.
 *
 * @param restarts - The rows at which a run began again.
 * @param counts - Whether x counts steps or is a time, so that a new pass begins where it goes back.
 */
export function passesOf(x: Float64Array, restarts: readonly number[], counts: boolean): Rows[] | null {
  const n = x.length
  const starts = new Set([0, ...restarts.filter((row) => row < n)])
  let n_back = 0
  if (counts) {
    for (let i = 1; i < n; i++) {
      if (!(x[i]! < x[i - 1]!)) continue
      starts.add(i)
      if (++n_back > n / MIN_MEAN_LENGTH) return null
    }
  }
  if (n_back && n < MIN_MEAN_LENGTH * starts.size) return null
  const sorted = [...starts].sort((a, b) => a - b)
  return sorted.map((start, i) => ({ start, end: sorted[i + 1] ?? n }))
}

/** Times that do not go back where a clock was set back; as they are, if the records came out of order. */
export function goingOn(times: Float64Array): Float64Array {
  const passes = passesOf(times, [], true)
  if (!passes || passes.length === 1) return times
  const found = times.slice()
  let shift = 0
  for (const { start, end } of passes.slice(1)) {
    shift += times[start - 1]! - times[start]!
    for (let i = start; i < end; i++) found[i]! += shift
  }
  return found
}

/** What a line needs to say of the passes before its newest one. */
export const FAINT = 'earlier passes faint'

/** The line of a part: the newest bears the name of the whole line, earlier ones are parts of it. */
export function lineOfPart<T extends { id: string; label: string }>(line: T, { pass, alpha }: PassPart, newest: boolean, faint: boolean) {
  if (newest) return { ...line, inParts: true, ...(faint && { state: FAINT }) }
  return { ...line, id: `${line.id} ${pass} ${alpha}`, label: `${line.label}, pass ${pass + 1}`, alpha, earlier: line.id }
}

/** The parts of a line, the oldest first, the newest pass last; null if there are too many. x increases within each pass. */
export function partsOf(x: Float64Array, passes: readonly Rows[], history: number): PassPart[] | null {
  const newest = passes.length - 1
  const full: PassPart[] = [{ ...passes[newest]!, pass: newest, alpha: 1 }]
  const again: Omit<PassPart, 'alpha'>[] = []
  let floor = x[passes[newest]!.start]!
  for (let pass = newest - 1; pass >= 0; pass--) {
    const { start, end } = passes[pass]!
    const cut = start + lowerBound(x.subarray(start, end), floor)
    if (cut < end && again.length < history) again.push({ start: Math.max(start, cut - 1), end, pass })
    if (cut > start) full.push({ start, end: cut, pass, alpha: 1 })
    floor = Math.min(floor, x[start]!)
  }
  if (full.length > MAX_PARTS) return null
  const faint = again.map((part, i) => ({ ...part, alpha: fading(i + 1, again.length + 1) }))
  return [...faint.reverse(), ...full.reverse()]
}
