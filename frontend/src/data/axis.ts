// Columns of the table as axes: numbers, also logarithmic ones, times, and texts side by side.

import { number, value as textOf } from '../views/format'
import type { Span } from '../views/span'
import { placeTicks, ticksOf, type AxisKind } from '../views/ticks'
import { inOrder } from './order'

export interface Axis {
  name: string
  /** Whether it has numbers, which can have a logarithmic scale. */
  numeric: boolean
  /** Its texts in their order, if it has no numbers. */
  texts: readonly string[]
  log: boolean
  /** The place of each run, from 0 to 1; NaN without one. */
  places: Float64Array
  /** Up to about `n` ticks, at places from 0 to 1. */
  ticks: (n: number) => { at: number; text: string }[]
}

const KINDS: Record<string, AxisKind> = { started: 'wall', ended: 'wall', duration: 'relative' }

export function axisOf(name: string, values: readonly unknown[], wantsLog: boolean): Axis {
  const there = values.filter((one) => one !== undefined && one !== null)
  const numeric = there.length > 0 && there.every((one) => typeof one === 'number')
  if (!numeric) return ofTexts(name, values.map((one) => (one === undefined || one === null ? null : textOf(one))))
  const kind = KINDS[name] ?? 'number'
  const log = wantsLog && kind !== 'wall'
  const usable = (there as number[]).filter((one) => Number.isFinite(one) && (!log || one > 0))
  const span = widened(usable, log)
  const scale = log ? Math.log10 : (one: number) => one
  const [from, to] = span.map(scale) as Span
  // Infinities stand at the ends, so that they can be brushed with what is near.
  const placeOf = (one: unknown) => (typeof one === 'number' && (!log || one > 0) ? Math.min(1, Math.max(0, (scale(one) - from) / (to - from))) : NaN)
  const known = kind === 'number' ? settings(usable) : null
  const ticks = (n: number) => {
    if (known) return spaced(known.map((one) => ({ at: placeOf(one), text: number(one, 3) })), n)
    const { at, label } = ticksOf(log ? 'log' : kind, span, n)
    return at.map((one) => ({ at: placeOf(one), text: label(one) }))
  }
  return { name, numeric, texts: [], log, places: Float64Array.from(values, placeOf), ticks }
}

/** A learning rate has a few values, and no others are worth a tick. */
const MAX_SETTINGS = 8

/** The values, if they are few that several runs have, or integers. */
function settings(values: readonly number[]): number[] | null {
  const few = [...new Set(values)].sort((a, b) => a - b)
  return few.length > 0 && few.length <= MAX_SETTINGS && (few.length < values.length || few.every(Number.isInteger)) ? few : null
}

/** Those of about `n` ticks that have room, the first one always. */
function spaced<Tick extends { at: number }>(ticks: readonly Tick[], n: number): Tick[] {
  let last = -Infinity
  return ticks.filter(({ at }) => at - last >= 0.7 / n && ((last = at), true))
}

/** Whether a linear axis shows most values in one heap: all are above zero, and they span two decades. */
export function isWide(values: readonly unknown[]): boolean {
  const numbers = values.filter((one): one is number => typeof one === 'number' && Number.isFinite(one))
  const [low, high] = [numbers.reduce((a, b) => Math.min(a, b), Infinity), numbers.reduce((a, b) => Math.max(a, b), -Infinity)]
  return low > 0 && high >= 100 * low
}

/** From the lowest to the highest; around a single value some room. */
function widened(values: readonly number[], log: boolean): Span {
  const [low, high] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)]
  if (low > high) return log ? [1, 10] : [0, 1]
  if (low < high) return [low, high]
  return log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2]
}

function ofTexts(name: string, texts: readonly (string | null)[]): Axis {
  const names = [...new Set(texts)].filter((text) => text !== null).sort(inOrder)
  const order = new Map(names.map((text, i) => [text, i]))
  const placeOf = (i: number) => (names.length > 1 ? i / (names.length - 1) : 0.5)
  const ticks = (n: number) => {
    const { at, label } = placeTicks(names, [0, names.length - 1], n)
    return at.map((i) => ({ at: placeOf(i), text: label(i) }))
  }
  return { name, numeric: false, texts: names, log: false, places: Float64Array.from(texts, (text) => (text === null ? NaN : placeOf(order.get(text)!))), ticks }
}

/** The runs after which the best was another one, in the order of `x`, by their numbers. */
export function bestSoFar(x: ArrayLike<number>, y: ArrayLike<number>, lowest: boolean): number[] {
  const order = Array.from(x, (_, i) => i).filter((i) => !Number.isNaN(x[i]!) && !Number.isNaN(y[i]!))
  order.sort((a, b) => x[a]! - x[b]! || a - b)
  let best = NaN
  return order.filter((i) => {
    const better = Number.isNaN(best) || (lowest ? y[i]! < best : y[i]! > best)
    if (better) best = y[i]!
    return better
  })
}

/** The next run along an axis, from one of them or, without one, from the end. */
export function nextAlong(places: ArrayLike<number>, from: number, step: 1 | -1): number {
  const order = Array.from(places, (_, i) => i).filter((i) => !Number.isNaN(places[i]!))
  order.sort((a, b) => places[a]! - places[b]! || a - b)
  const at = order.indexOf(from)
  if (at < 0) return order[step > 0 ? 0 : order.length - 1] ?? -1
  return order[Math.min(order.length - 1, Math.max(0, at + step))]!
}

/** The runs whose places on all of some axes lie within their ranges. */
export function within(ranges: readonly { places: ArrayLike<number>; span: Span }[], n: number): number[] {
  const all = Array.from({ length: n }, (_, i) => i)
  return all.filter((i) => ranges.every(({ places, span: [low, high] }) => places[i]! >= low && places[i]! <= high))
}
