// What a value of a stream is, for views that draw it.

import { arrayOf } from './array'

export interface Bars {
  names: string[]
  values: number[]
}

export interface Counts {
  edges: number[]
  counts: number[]
}

export interface Matrix {
  rows: number
  columns: number
  data: ArrayLike<number>
}

function listOf(value: unknown): number[] | null {
  if (Array.isArray(value)) return value.every((one) => typeof one === 'number' || typeof one === 'boolean') ? value.map(Number) : null
  const array = arrayOf(value)
  return array && array.shape.length === 1 ? Array.from(array.data) : null
}

export function barsOf(value: unknown): Bars | null {
  const list = listOf(value)
  if (list) return { names: list.map((_, i) => String(i)), values: list }
  if (typeof value !== 'object' || value === null || Array.isArray(value) || arrayOf(value)) return null
  const bars: Bars = { names: [], values: [] }
  collect(value as Record<string, unknown>, '', bars)
  return bars.names.length ? bars : null
}

function collect(value: Record<string, unknown>, prefix: string, bars: Bars): void {
  for (const [name, one] of Object.entries(value)) {
    if (typeof one === 'number' || typeof one === 'boolean') {
      bars.names.push(prefix + name)
      bars.values.push(Number(one))
      continue
    }
    const array = arrayOf(one)
    if (array && array.data.length === 1) {
      bars.names.push(prefix + name)
      bars.values.push(Number(array.data[0]))
    } else if (typeof one === 'object' && one !== null && !array) collect(one as Record<string, unknown>, `${prefix}${name}/`, bars)
  }
}

/** A histogram, or the counts of a vector in equal bins. */
export function countsOf(value: unknown, n_bins = 32): Counts | null {
  const made = value as { counts?: unknown; edges?: unknown } | null
  const [counts, edges] = [listOf(made?.counts), listOf(made?.edges)]
  if (counts && edges && edges.length === counts.length + 1) return { edges, counts }
  const array = arrayOf(value)
  const list = (array ? Array.from(array.data) : listOf(value))?.filter(Number.isFinite)
  if (!list?.length) return null
  let [low, high] = [Infinity, -Infinity]
  for (const one of list) {
    low = Math.min(low, one)
    high = Math.max(high, one)
  }
  if (low === high) [low, high] = [low - 0.5, high + 0.5]
  const found = new Array<number>(n_bins).fill(0)
  for (const one of list) found[Math.min(n_bins - 1, Math.floor(((one - low) / (high - low)) * n_bins))]!++
  return { counts: found, edges: Array.from({ length: n_bins + 1 }, (_, i) => low + ((high - low) * i) / n_bins) }
}

export function matrixOf(value: unknown): Matrix | null {
  const array = arrayOf(value)
  if (!array || array.shape.length !== 2) return null
  return { rows: array.shape[0]!, columns: array.shape[1]!, data: array.data }
}

export interface Picture {
  bytes: Uint8Array
  type: string
  caption: string
}

export function picturesOf(value: unknown): Picture[] {
  const made = value as { png?: unknown; caption?: string; images?: unknown[]; media_type?: string; data?: unknown } | null
  if (Array.isArray(made?.images)) return made.images.flatMap(picturesOf)
  if (made?.png instanceof Uint8Array) return [{ bytes: made.png, type: 'image/png', caption: made.caption ?? '' }]
  if (made?.media_type === 'image/png' && made.data instanceof Uint8Array) return [{ bytes: made.data, type: made.media_type, caption: '' }]
  return []
}

/** Any value as text, short. */
export function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  const array = arrayOf(value)
  if (array) return `${array.dtype}[${array.shape.join(', ')}] ${Array.from(array.data).slice(0, 8).map((n) => +n.toPrecision(4)).join(' ')}${array.data.length > 8 ? ' …' : ''}`
  const large = (value as { too_large?: string } | null)?.too_large
  if (large) return `${large}: too large to be shown; ask for a slice or a statistic of it`
  if (typeof value === 'number') return String(value)
  return JSON.stringify(value, (_, one: unknown) => (one instanceof Uint8Array ? `${one.length} bytes` : typeof one === 'bigint' ? String(one) : one)) ?? ''
}
