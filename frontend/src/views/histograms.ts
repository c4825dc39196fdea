// Histograms over steps: where bins and steps stand, whatever the picture.

import type { Span } from './span'
import { number } from './format'
import { ticksOf } from './ticks'

/** Counts at steps, in bins that all steps share. */
export interface HistogramSeries {
  steps: number[]
  /** Seconds since the Unix epoch. */
  walls: number[]
  /** One more than there are bins, increasing. */
  edges: number[]
  /** A row a step. */
  counts: number[][]
  n_nan: number[]
  n_posinf: number[]
  n_neginf: number[]
  /** 5, 25, 50, 75 and 95 % at each step; NaN where nothing is finite. */
  percentiles: number[][]
}

/** Where a value stands among bins of one width: 0 at the first edge, n at the last. */
export function placeOf(edges: readonly number[], value: number): number {
  let [low, high] = [0, edges.length - 1]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (edges[middle]! <= value) low = middle
    else high = middle
  }
  const width = edges[high]! - edges[low]!
  return low + (width > 0 ? (value - edges[low]!) / width : 0)
}

/** The value at a place; the inverse of `placeOf`. */
export function valueAt(edges: readonly number[], place: number): number {
  const low = Math.max(0, Math.min(edges.length - 2, Math.floor(place)))
  return edges[low]! + (place - low) * (edges[low + 1]! - edges[low]!)
}

/** Where steps stand, from 0 to 1: at the true distances of their numbers or times, or evenly. A clock may be set back. */
export function stepPlaces(numbers: readonly number[], even: boolean): number[] {
  let top = -Infinity
  const steps = numbers.map((one) => (top = Math.max(top, one)))
  const n = steps.length
  if (n < 2) return steps.map(() => 1)
  const [first, last] = [steps[0]!, steps[n - 1]!]
  if (even || last === first) return steps.map((_, i) => i / (n - 1))
  return steps.map((step) => (step - first) / (last - first))
}

/** The steps within a span: from the first, to before the second. */
export function stepsWithin(steps: readonly number[], span: Span | null): [number, number] {
  if (!span) return [0, steps.length]
  const from = steps.findIndex((step) => step >= span[0])
  if (from < 0) return [0, 0]
  const after = steps.findIndex((step) => step > span[1])
  return [from, after < 0 ? steps.length : after]
}

/** Some of the places, at least `apart` from each other; the last is always among them. */
export function spaced(places: readonly number[], apart: number): number[] {
  const kept: number[] = []
  let next = Infinity
  for (let i = places.length - 1; i >= 0; i--) {
    if (next - places[i]! < apart) continue
    kept.push(i)
    next = places[i]!
  }
  return kept.reverse()
}

export interface Tick {
  place: number
  label: string
}

/** Ticks at round values, as places; on a symmetric log scale they are powers of ten. */
export function valueTicks(edges: readonly number[], [p0, p1]: Span, symlog: boolean, n: number): Tick[] {
  const [low, high] = [valueAt(edges, p0), valueAt(edges, p1)]
  const values = symlog ? powers(low, high) : ticksOf('number', [low, high], n).at
  const label = symlog ? (v: number) => number(v, 2) : ticksOf('number', [low, high], n).label
  const found: Tick[] = []
  const room = (p1 - p0) / n / 1.4
  // If not all fit, zero and the values far from it stay.
  for (const value of symlog ? values.sort((a, b) => Number(a !== 0) - Number(b !== 0) || Math.abs(b) - Math.abs(a)) : values) {
    const place = placeOf(edges, value)
    if (place < p0 || place > p1 || found.some((tick) => Math.abs(tick.place - place) < room)) continue
    found.push({ place, label: Math.abs(value) < Math.abs(high - low) / 1e9 && !symlog ? '0' : label(value) })
  }
  return found.sort((a, b) => a.place - b.place)
}

function powers(low: number, high: number): number[] {
  const values = low <= 0 && high >= 0 ? [0] : []
  const top = Math.floor(Math.log10(Math.max(Math.abs(low), Math.abs(high), 1e-300)))
  for (let e = top - 40; e <= top; e++) values.push(10 ** e, -(10 ** e))
  return values.filter((v) => v >= low && v <= high)
}

export function largest(counts: readonly (readonly number[])[]): number {
  let top = 0
  for (const row of counts) for (const n of row) if (n > top) top = n
  return top
}

/** All values at a step: those in bins, and those that no bin can hold. */
export const totalAt = (series: HistogramSeries, i: number): number =>
  series.counts[i]!.reduce((a, b) => a + b, 0) + series.n_nan[i]! + series.n_posinf[i]! + series.n_neginf[i]!

/** The facts about a bin at a step, for the tooltip. */
export function binFacts(series: HistogramSeries, i: number, bin: number): string[] {
  const { edges, counts } = series
  const total = totalAt(series, i)
  const n = counts[i]![bin]!
  const last = bin === edges.length - 2
  const odd = [
    [series.n_nan[i]!, 'NaN'],
    [series.n_posinf[i]!, '+Inf'],
    [series.n_neginf[i]!, '−Inf'],
  ] as const
  return [
    `${n.toLocaleString('en')} of ${total.toLocaleString('en')} values (${number(total ? (100 * n) / total : 0, 3)} %)`,
    `in [${number(edges[bin]!, 4)}, ${number(edges[bin + 1]!, 4)}${last ? ']' : ')'}`,
    ...odd.filter(([k]) => k > 0).map(([k, name]) => `${k.toLocaleString('en')} ${name}`),
  ]
}

const MAX_BINS = 1_024

/** The number of bins for a zoomed view: a power of two times the requested number, so that as many stay visible. */
export function finerBins(bins: number, edges: readonly number[], [low, high]: Span): number {
  const share = (edges.at(-1)! - edges[0]!) / (high - low)
  return Math.min(MAX_BINS, bins * 2 ** Math.max(0, Math.ceil(Math.log2(share))))
}

/** Whether almost all values are in two bins beside each other: some outliers squeeze the others. */
export function isSqueezed({ counts, edges }: { counts: readonly (readonly number[])[]; edges: readonly number[] }): boolean {
  const n_bins = edges.length - 1
  if (n_bins < 8 || !counts.length) return false
  const totals = edges.slice(1).map((_, bin) => counts.reduce((sum, row) => sum + row[bin]!, 0))
  const all = totals.reduce((a, b) => a + b, 0)
  const most = Math.max(...totals.map((n, bin) => n + (totals[bin + 1] ?? 0)))
  return all > 0 && most < all && most > 0.98 * all
}
