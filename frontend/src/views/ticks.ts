// Where an axis has its ticks, and what they say.

import type { Span } from './span'
import { count, duration, minus, number } from './format'

export interface Ticks {
  at: number[]
  label: (value: number) => string
}

export type AxisKind = 'number' | 'log' | 'relative' | 'wall'

export function ticksOf(kind: AxisKind, [low, high]: Span, n: number): Ticks {
  switch (kind) {
    case 'number':
      return linear(low, high, n)
    case 'log':
      return logarithmic(low, high, n)
    case 'relative':
      return relative(low, high, n)
    case 'wall':
      return wall(low, high, n)
  }
}

const MAX_PLACE = 16

/** Ticks of an axis of names: at 0, 1, 2 …, as many as fit. Long names keep their ends, which distinguish layers. */
export function placeTicks(places: readonly string[], [low, high]: Span, n: number): Ticks {
  const [first, last] = [Math.max(0, Math.ceil(low)), Math.min(places.length - 1, Math.floor(high))]
  const every = Math.max(1, Math.ceil((last - first + 1) / n))
  const at: number[] = []
  for (let i = first; i <= last; i += every) at.push(i)
  const label = (i: number) => {
    const name = places[i] ?? ''
    return name.length > MAX_PLACE ? `…${name.slice(1 - MAX_PLACE)}` : name
  }
  return { at, label }
}

function linear(low: number, high: number, n: number): Ticks {
  const rough = (high - low) / n
  const unit = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].find((m) => m * unit >= rough)! * unit
  // Enough digits to distinguish neighbours.
  const largest = Math.max(Math.abs(low), Math.abs(high))
  const digits = Math.min(12, Math.max(2, Math.ceil(Math.log10(largest / step)) + 1))
  const label = (v: number) => (largest >= 1e4 && largest < 1e9 && Number.isInteger(step) ? thousands(v, step) : number(v, digits))
  return stepped(low, high, step, 0, (v) => (Math.abs(v) < step / 1e6 ? '0' : label(v)))
}

function thousands(value: number, step: number): string {
  if (value === 0) return '0'
  const [unit, name] = Math.abs(value) >= 1e6 || step >= 1e6 ? [1e6, 'M'] : [1e3, 'k']
  return `${number(value / unit, 8)}${name}`
}

function stepped(low: number, high: number, step: number, origin: number, label: Ticks['label']): Ticks {
  const at: number[] = []
  const first = Math.ceil((low - origin) / step - 1e-9)
  for (let i = first; at.length < 100; i++) {
    const value = origin + i * step
    if (value > high + step * 1e-9) break
    at.push(value)
  }
  return { at, label }
}

function logarithmic(low: number, high: number, n: number): Ticks {
  const [from, to] = [Math.log10(low), Math.log10(high)]
  if (to - from < 0.7) return linear(low, high, n)
  const every = Math.max(1, Math.ceil((to - from) / n))
  const multiples = to - from < n / 1.6 ? [1, 2, 5] : [1]
  const at: number[] = []
  for (let e = Math.floor(from / every) * every; e <= to; e += every) {
    for (const m of multiples) {
      const value = Number(`${m}e${e}`)
      if (value >= low && value <= high) at.push(value)
    }
  }
  const small = at.some((v) => v < 1e-3) // then all ticks below 1 are written alike
  return { at, label: (v) => (v >= 1e4 ? count(v) : small && v < 1 ? minus(v.toExponential()) : number(v, 3)) }
}

const SECONDS = [-6, -5, -4, -3, -2, -1]
  .flatMap((e) => [1, 2, 5].map((m) => Number(`${m}e${e}`)))
  .concat([1, 2, 5, 10, 15, 30])
  .concat([1, 2, 5, 10, 15, 30].map((m) => m * 60))
  .concat([1, 2, 3, 6, 12].map((h) => h * 3600))
  .concat([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((d) => d * 86400))

const stepOf = (steps: number[], rough: number): number => steps.find((s) => s >= rough) ?? steps[steps.length - 1]!

/** The decimals that tell neighbours apart. */
const decimals = (step: number): number => (step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)))

function relative(low: number, high: number, n: number): Ticks {
  const step = stepOf(SECONDS, (high - low) / n)
  const digits = decimals(step)
  return stepped(low, high, step, 0, (v) => {
    if (!digits || Math.abs(v) < step / 2) return duration(v)
    const [sign, size] = [v < 0 ? '−' : '', Number(Math.abs(v).toFixed(digits))]
    const minutes = Math.floor(size / 60)
    return `${sign}${minutes ? `${duration(60 * minutes)} ` : ''}${(size - 60 * minutes).toFixed(digits)} s`
  })
}

function wall(low: number, high: number, n: number): Ticks {
  const step = stepOf(SECONDS, (high - low) / n)
  // Ticks stand at whole hours and days of the reader's own clock.
  const origin = new Date(low * 1000).getTimezoneOffset() * 60
  return stepped(low, high, step, origin, (v) => {
    const date = new Date(Math.floor(v * 1000 + 1e-3))
    const two = (x: number) => String(x).padStart(2, '0')
    const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`
    const clock = `${two(date.getHours())}:${two(date.getMinutes())}`
    if (step >= 86400) return day
    if (step >= 1 && date.getHours() + date.getMinutes() + date.getSeconds() === 0) return day
    if (step >= 60) return clock
    const digits = decimals(step)
    return `${clock}:${digits ? (((v % 60) + 60) % 60).toFixed(digits).padStart(3 + digits, '0') : two(date.getSeconds())}`
  })
}
