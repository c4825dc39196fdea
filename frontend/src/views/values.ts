// The values of a stream as views need them. Values that cannot be drawn become null or empty.

import { arrayOf, bytesOf, type ArrayValue } from './array'
import { PLOTLY } from './plotly'
import type { Sound, Wave } from './wave'

export interface Bars {
  names: string[]
  values: number[]
}

export interface Counts {
  edges: number[]
  counts: number[]
  n_nan: number
  n_posinf: number
  n_neginf: number
}

export interface Matrix {
  rows: number
  columns: number
  data: ArrayLike<number>
}

/** A picture in a file, a figure of Plotly, or pixels: rows of points of one, three or four channels. */
export type Picture = { caption: string } & ({ bytes: Uint8Array; type: string } | { json: string } | { pixels: ArrayLike<number>; height: number; width: number; channels: number })

const MAX_NESTING = 8
const FIGURE_RATIO = 1.5 // of a figure of Plotly, which fills its place
const MAX_SORTED = 20_000
/** A distribution over the steps is drawn as these: as the terminal does. */
export const BAND = [0.1, 0.5, 0.9] as const

const isNumber = (value: unknown): value is number | boolean => typeof value === 'number' || typeof value === 'boolean'

/** A number, a truth value, or an array that holds one number. */
function numberOf(value: unknown): number | null {
  if (isNumber(value)) return Number(value)
  const array = arrayOf(value)
  return array && array.data.length === 1 ? array.data[0]! : null
}

function listOf(value: unknown): ArrayLike<number> | null {
  if (Array.isArray(value)) return value.length && value.every(isNumber) ? value.map(Number) : null
  const array = arrayOf(value)
  return array && array.shape.length === 1 ? array.data : null
}

/** The names and values of nested mappings; the names of the levels are joined by "/". */
export function named(value: unknown): readonly [string, unknown][] {
  if (!isMapping(value)) return []
  let found = namedBefore.get(value)
  if (!found) {
    collect(value, '', MAX_NESTING, (found = []))
    namedBefore.set(value, found)
  }
  return found
}

const namedBefore = new WeakMap<object, [string, unknown][]>()

/** Those of them that are numbers. */
export function namedNumbers(value: unknown): [string, number][] {
  return named(value).flatMap(([name, one]): [string, number][] => (typeof one === 'number' ? [[name, one]] : []))
}

function isMapping(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || ArrayBuffer.isView(value)) return false
  return !('dtype' in value || 'png' in value || 'images' in value || 'media_type' in value || 'peaks' in value || sheetOf(value) || 'too_large' in value || 'problem' in value || isCounted(value))
}

const isCounted = (value: object): boolean => 'counts' in value && 'edges' in value

function collect(value: Record<string, unknown>, prefix: string, depth: number, found: [string, unknown][]): void {
  for (const [name, one] of Object.entries(value)) {
    const number = numberOf(one)
    if (number !== null) found.push([prefix + name, number])
    else if (depth > 1 && isMapping(one)) collect(one, `${prefix}${name}/`, depth - 1, found)
    else found.push([prefix + name, one])
  }
}

export function barsOf(value: unknown): Bars | null {
  const list = listOf(value)
  if (list) return { names: Array.from(list, (_, i) => String(i)), values: Array.from(list) }
  const named = namedNumbers(value)
  return named.length ? { names: named.map(([name]) => name), values: named.map(([, one]) => one) } : null
}

/** A histogram, or the counts of the values of a list or an array in equal bins. */
export function countsOf(value: unknown, n_bins = 32): Counts | null {
  if (typeof value === 'object' && value !== null && isCounted(value)) {
    const made = value as { counts: unknown; edges: unknown; n_nan?: number; n_posinf?: number; n_neginf?: number }
    const [counts, edges] = [listOf(made.counts), listOf(made.edges)]
    if (!counts || !edges || edges.length !== counts.length + 1) return null
    const rest = { n_nan: Number(made.n_nan ?? 0), n_posinf: Number(made.n_posinf ?? 0), n_neginf: Number(made.n_neginf ?? 0) }
    return { edges: Array.from(edges), counts: Array.from(counts), ...rest }
  }
  const all = arrayOf(value)?.data ?? listOf(value)
  return all?.length ? counted(all, n_bins) : null
}

export function counted(all: ArrayLike<number>, n_bins = 32): Counts {
  let [low, high, n_nan, n_posinf, n_neginf] = [Infinity, -Infinity, 0, 0, 0]
  for (let i = 0; i < all.length; i++) {
    const one = all[i]!
    if (Number.isNaN(one)) n_nan++
    else if (one === Infinity) n_posinf++
    else if (one === -Infinity) n_neginf++
    else {
      if (one < low) low = one
      if (one > high) high = one
    }
  }
  if (low > high) [low, high] = [0, 1]
  if (low === high) [low, high] = [low - 0.5, high + 0.5]
  const counts = new Array<number>(n_bins).fill(0)
  for (let i = 0; i < all.length; i++) {
    if (Number.isFinite(all[i]!)) counts[Math.min(n_bins - 1, Math.floor(((all[i]! - low) / (high - low)) * n_bins))]!++
  }
  return { counts, edges: Array.from({ length: n_bins + 1 }, (_, i) => low + ((high - low) * i) / n_bins), n_nan, n_posinf, n_neginf }
}

/** Counts by the width of their bins, so that uneven bins do not mislead. */
export const densities = ({ edges, counts }: Counts): number[] => counts.map((n, i) => n / (edges[i + 1]! - edges[i]! || 1))

export const total = ({ counts }: Counts): number => counts.reduce((a, b) => a + b, 0)

/** The low end, middle and high end of a distribution; null if the value is not one. */
export function bandOf(value: unknown): [number, number, number] | null {
  const isHistogram = typeof value === 'object' && value !== null && isCounted(value)
  if (isHistogram) {
    const counts = countsOf(value)
    return counts && total(counts) ? (BAND.map((q) => quantileOf(counts, q)) as [number, number, number]) : null
  }
  const list = listOf(value)
  if (!list) return null
  const every = Math.ceil(list.length / MAX_SORTED)
  const sorted = Float64Array.from(list).filter((one, i) => i % every === 0 && Number.isFinite(one)).sort()
  if (!sorted.length) return [NaN, NaN, NaN]
  return BAND.map((q) => between(sorted, q * (sorted.length - 1))) as [number, number, number]
}

function between(sorted: ArrayLike<number>, at: number): number {
  const low = Math.floor(at)
  const [a, b] = [sorted[low]!, sorted[Math.min(sorted.length - 1, low + 1)]!]
  return a + (b - a) * (at - low)
}

function quantileOf({ edges, counts }: Counts, q: number): number {
  let left = q * counts.reduce((a, b) => a + b, 0)
  for (let i = 0; i < counts.length; i++) {
    if (counts[i]! >= left && counts[i]! > 0) return edges[i]! + (edges[i + 1]! - edges[i]!) * (left / counts[i]!)
    left -= counts[i]!
  }
  return edges[edges.length - 1]!
}

const matrices = new WeakMap<object, Matrix>()

/** The same matrix for the same value, so that it is painted once. */
export function matrixOf(value: unknown): Matrix | null {
  const array = arrayOf(value)
  if (!array || array.shape.length !== 2 || !array.data.length) return null
  const found = matrices.get(array) ?? { rows: array.shape[0]!, columns: array.shape[1]!, data: array.data }
  matrices.set(array, found)
  return found
}

/** A point in x, y and perhaps z, of a pair, a triple, or a pair with a text; a list of two or three numbers is one too. */
export function pointOf(value: unknown): [x: number, y: number, z: number] | null {
  if (!Array.isArray(value) || value.length < 2 || value.length > 3) return null
  const [x, y] = [numberOf(value[0]), numberOf(value[1])]
  if (x === null || y === null) return null
  if (value.length === 2 || typeof value[2] === 'string') return [x, y, NaN]
  const z = numberOf(value[2])
  return z === null ? null : [x, y, z]
}

export const noteOf = (value: unknown): string => (Array.isArray(value) && value.length === 3 && typeof value[2] === 'string' ? value[2] : '')

export function picturesOf(value: unknown): Picture[] {
  const array = arrayOf(value)
  if (array) return array.dtype === 'uint8' ? pixelsOf(array) : []
  const made = value as { png?: unknown; caption?: string; images?: unknown[]; media_type?: string; data?: unknown } | null
  if (Array.isArray(made?.images)) return made.images.flatMap(picturesOf)
  const [png, data] = [bytesOf(made?.png), bytesOf(made?.data)]
  if (png) return [{ bytes: png, type: 'image/png', caption: made?.caption ?? '' }]
  const type = String(made?.media_type ?? '')
  if (data && type === PLOTLY) return [{ json: new TextDecoder().decode(data), caption: '' }]
  return data && /^image\/(png|svg\+xml)$/.test(type) ? [{ bytes: data, type, caption: '' }] : []
}

/** A table: its columns, how many rows it has, and the first of them, or some that were found. */
export interface Sheet {
  columns: { name: string; type: string }[]
  n_rows: number
  rows: unknown[][]
}

export function sheetOf(value: unknown): Sheet | null {
  const made = value as Partial<Sheet> | null
  return Array.isArray(made?.columns) && Array.isArray(made.rows) && typeof made.n_rows === 'number' ? (made as Sheet) : null
}

/** The picture in a cell of a table. */
export function pictureIn(cell: unknown): { data: unknown; type: string; caption: string } | null {
  const made = cell as { png?: unknown; caption?: string; media_type?: string; data?: unknown } | null
  if (made?.png) return { data: made.png, type: 'image/png', caption: made.caption ?? '' }
  return made?.media_type?.startsWith('image/') ? { data: made.data, type: made.media_type, caption: '' } : null
}

/** A sound, or several. */
export function soundsOf(value: unknown): Sound[] {
  if (Array.isArray(value)) return value.flatMap(soundsOf)
  const made = value as { peaks?: unknown; wav?: unknown } | null
  return Array.isArray(made?.peaks) ? [{ ...(made as unknown as Wave), wav: bytesOf(made.wav) }] : []
}

/** The width of a picture by its height; 1 where only the browser can tell. */
export function ratioOf(picture: Picture): number {
  if ('pixels' in picture) return picture.width / picture.height
  if ('json' in picture) return FIGURE_RATIO
  const { bytes, type } = picture
  // A PNG begins with its size: https://www.w3.org/TR/png-3/#11IHDR
  if (type !== 'image/png' || bytes.byteLength < 24) return 1
  const head = new DataView(bytes.buffer, bytes.byteOffset + 16, 8)
  return head.getUint32(0) / head.getUint32(4) || 1
}

/** The shapes (h, w, 1|3|4), and several of them. */
function pixelsOf({ shape, data }: ArrayValue): Picture[] {
  const [height, width, channels] = (shape.length === 2 ? [...shape, 1] : shape.slice(-3)) as [number, number, number]
  if (shape.length < 2 || shape.length > 4 || ![1, 3, 4].includes(channels)) return []
  const size = height * width * channels
  return Array.from({ length: size ? data.length / size : 0 }, (_, i) => ({ caption: '', height, width, channels, pixels: Array.prototype.slice.call(data, i * size, (i + 1) * size) }))
}

/** The approximate size of a value in bytes, which bounds the records that a stream keeps. */
export function sizeOf(value: unknown, depth = 0): number {
  if (typeof value === 'string') return 16 + 2 * value.length
  if (typeof value !== 'object' || value === null || depth > MAX_NESTING) return 16
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return 64 + value.byteLength
  let bytes = 64
  for (const [name, one] of Object.entries(value)) bytes += 2 * name.length + sizeOf(one, depth + 1)
  return bytes
}

const MAX_TEXT = 2_000
const MAX_SHOWN = 8

/** Any value as text, short. */
export function textOf(value: unknown): string {
  const text = typeof value === 'string' ? value : described(value)
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)} … (${text.length.toLocaleString('en')} characters)` : text
}

function described(value: unknown): string {
  if (value === null || value === undefined) return '—'
  if (typeof value !== 'object') return typeof value === 'number' ? String(+value.toPrecision(8)) : String(value)
  const array = arrayOf(value)
  if (array) return `${array.dtype}[${array.shape.join(', ')}]  ${listed(Array.from(array.data.length > MAX_SHOWN ? Array.prototype.slice.call(array.data, 0, MAX_SHOWN) : array.data), array.data.length, (n) => String(+(n as number).toPrecision(4)))}`
  const { too_large, problem, media_type, png, images, peaks, about } = value as Record<string, unknown>
  if (typeof too_large === 'string') return `${too_large}: too large to be shown; ask for a slice or a statistic of it`
  if (typeof problem === 'string') return problem
  if (peaks) return String(about)
  const sheet = sheetOf(value)
  if (sheet) return `${sheet.n_rows.toLocaleString('en')} rows of ${sheet.columns.map(({ name }) => name).join(', ')}`
  if (png) return 'an image'
  if (Array.isArray(images)) return `${images.length} images`
  if (typeof media_type === 'string') return `a figure, ${media_type}`
  const counts = countsOf(value)
  if (counts && isCounted(value)) return `histogram of ${total(counts).toLocaleString('en')} values from ${+counts.edges[0]!.toPrecision(4)} to ${+counts.edges[counts.edges.length - 1]!.toPrecision(4)}`
  if (Array.isArray(value)) return `[${listed(value.slice(0, MAX_SHOWN), value.length, described)}]`
  const entries = Object.entries(value)
  return `{${listed(entries.slice(0, MAX_SHOWN), entries.length, (entry) => `${(entry as [string, unknown])[0]}: ${described((entry as [string, unknown])[1])}`)}}`
}

function listed(some: unknown[], n: number, say: (one: unknown) => string): string {
  return some.map(say).join(', ') + (n > some.length ? `, … ${n.toLocaleString('en')} in all` : '')
}
