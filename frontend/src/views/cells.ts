// The cells of a table: what they say, how they are coloured, and which of millions are in sight.

import { number } from './format'
import { MISSING, type Rgb } from './palette'

/** A cell in JSON: values that are not finite, complex or beyond 2^53 are texts. */
export type Cell = number | string | boolean

export type Notation = 'auto' | 'fixed' | 'scientific'

export interface Format {
  notation: Notation
  digits: number
}

const COMPLEX = /^\(?([+-]?(?:[\d.]+(?:e[+-]?\d+)?|nan|inf))??([+-]?(?:[\d.]+(?:e[+-]?\d+)?|nan|inf))j\)?$/i
const WORDS = new Map([['NaN', NaN], ['nan', NaN], ['Infinity', Infinity], ['inf', Infinity], ['-Infinity', -Infinity], ['-inf', -Infinity]])

/** A number as JSON has it or people write it, infinities and NaN too; NaN for any other text. */
export const numberOf = (text: string): number => WORDS.get(text.replace(/^\+/, '').replace('∞', 'inf')) ?? Number(text)

function complexOf(text: string): [number, number] | null {
  const found = COMPLEX.exec(text)
  return found ? [numberOf(found[1] ?? '0'), numberOf(found[2]!)] : null
}

/** A cell as a number, for its colour: a complex one by its magnitude. */
export function sizeOf(cell: Cell): number {
  if (typeof cell !== 'string') return Number(cell)
  const complex = complexOf(cell)
  return complex ? Math.hypot(...complex) : numberOf(cell)
}

/** What a cell says; the cells of `str` are texts as they are. */
export function cellText(cell: Cell, format: Format, dtype = ''): string {
  if (dtype === 'str') return String(cell)
  if (typeof cell === 'boolean') return cell ? 'True' : 'False'
  if (typeof cell === 'number') return written(cell, format)
  const complex = complexOf(cell)
  if (complex) return `${written(complex[0], format)}${complex[1] < 0 ? '' : '+'}${written(complex[1], format)}j`
  return WORDS.has(cell) ? written(WORDS.get(cell)!, format) : cell.replace('-', '−')
}

function written(value: number, { notation, digits }: Format): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? 'Inf' : '−Inf'
  if (Object.is(value, -0)) return '−0'
  if (notation === 'auto') return number(value, Math.max(1, digits))
  return (notation === 'fixed' && Math.abs(value) < 1e21 ? value.toFixed(digits) : value.toExponential(digits)).replaceAll('-', '−')
}

/** Of a text: what is longer is cut, and stands in full below the table. */
export const MAX_TEXT = 18

/** How many characters the widest cell takes. */
export function widthOf(dtype: string, format: Format, bound: number): number {
  if (dtype === 'bool') return 6
  if (dtype === 'str') return MAX_TEXT
  const [integer] = [Math.ceil(Math.log10(Math.max(10, bound + 1)))]
  if (/^u?int/.test(dtype) && format.notation === 'auto') return Math.min(21, (bound < 1e6 ? integer : Math.max(format.digits + 6, dtype.endsWith('64') ? integer : 0)) + 2)
  const one = { auto: Math.max(1, format.digits) + 7, fixed: Math.min(21, integer) + format.digits + 2, scientific: format.digits + 7 }[format.notation]
  return dtype.startsWith('complex') ? 2 * one : one
}

export interface Shade {
  ground: string
  text: string
}

const LIGHT: Rgb[] = [[33, 102, 172], [255, 255, 255], [192, 82, 28]]
const DARK: Rgb[] = [[70, 150, 214], [22, 27, 31], [214, 106, 58]]
const N_SHADES = 128

const rgbText = (color: Rgb): string => `rgb(${color.join(' ')})`

export function luminance(color: Rgb): number {
  const [r, g, b] = color.map((channel) => {
    const share = channel / 255
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  }) as Rgb
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

export const contrast = (a: Rgb, b: Rgb): number => {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number]
  return (high + 0.05) / (low + 0.05)
}

const WHITE: Rgb = [255, 255, 255]
const BLACK: Rgb = [0, 0, 0]

/** Text that can be read on a ground. */
export const textOn = (ground: Rgb): Rgb => (contrast(ground, WHITE) > contrast(ground, BLACK) ? WHITE : BLACK)

const between = (a: Rgb, b: Rgb, share: number): Rgb => a.map((channel, i) => Math.round(channel + (b[i]! - channel) * share)) as Rgb

function shadesOf(stops: Rgb[]): Shade[] {
  return Array.from({ length: 2 * N_SHADES + 1 }, (_, i) => {
    const share = i / N_SHADES - 1
    // Small values differ from zero too.
    const ground = between(stops[1]!, stops[share < 0 ? 0 : 2]!, Math.abs(share) ** 0.8)
    return { ground: rgbText(ground), text: rgbText(textOn(ground)) }
  })
}

const SHADES = { light: shadesOf(LIGHT), dark: shadesOf(DARK) }
const NAN: Shade = { ground: rgbText(MISSING), text: rgbText(textOn(MISSING)) }
const POSINF: Shade = { ground: '#7a2e05', text: '#ffffff' }
const NEGINF: Shade = { ground: '#0b2f6b', text: '#ffffff' }

/** The colours of a cell: negative blue, positive orange, as strong as its share of `bound` on either side of zero. */
export function shadeOf(value: number, bound: number, dark: boolean): Shade {
  if (Number.isNaN(value)) return NAN
  if (!Number.isFinite(value)) return value > 0 ? POSINF : NEGINF
  const share = bound > 0 ? Math.max(-1, Math.min(1, value / bound)) : 0
  return SHADES[dark ? 'dark' : 'light'][Math.round((share + 1) * N_SHADES)]!
}

/** The colours of values from -bound to bound, or from 0 if none is negative. */
export const rampOf = (dark: boolean, signed: boolean): string[] => SHADES[dark ? 'dark' : 'light'].filter((_, i) => i % 16 === 0 && (signed || i >= N_SHADES)).map(({ ground }) => ground)

/** The largest finite magnitude. */
export function boundOf(values: Iterable<number>): number {
  let bound = 0
  for (const value of values) if (Number.isFinite(value)) bound = Math.max(bound, Math.abs(value))
  return bound
}

/** A table as lines of tab-separated cells, for spreadsheets. */
export const tsvOf = (rows: readonly (readonly Cell[])[], dtype: string): string => rows.map((row) => row.map((cell) => exact(cell, dtype)).join('\t')).join('\n')

const exact = (cell: Cell, dtype: string): string => (typeof cell === 'boolean' ? (cell ? 'True' : 'False') : typeof cell === 'number' ? shortest(cell, dtype) : cell)

/** The fewest digits from which a number of its type can be read again: 0.1 as a float32 is 0.10000000149011612. */
export function shortest(value: number, dtype: string): string {
  if (dtype !== 'float32' || Math.fround(value) !== value) return String(value)
  let digits = 1
  while (Math.fround(Number(value.toPrecision(digits))) !== value) digits++
  return String(Number(value.toPrecision(digits)))
}

/** Browsers cannot scroll further than this many pixels; longer tables scroll faster than the scroll bar. */
export const MAX_SCROLL = 8_000_000

export interface Scroll {
  /** How long the scrolled thing is made, in pixels. */
  length: number
  /** Real pixels that one pixel of the scroll bar stands for. */
  ratio: number
}

export function scrollOf(real: number, view: number): Scroll {
  const length = Math.min(real, MAX_SCROLL)
  return { length, ratio: length > view ? Math.max(1, (real - view) / (length - view)) : 1 }
}

/** Which of `n` rows of one height are in sight: from the first, to before the second. */
export function inSight(offset: number, view: number, size: number, n: number): [number, number] {
  const from = Math.min(n, Math.max(0, Math.floor(offset / size)))
  return [from, Math.max(from, Math.min(n, Math.ceil((offset + view) / size)))]
}

/** The smallest change of an offset that makes a row visible. */
export function reaching(offset: number, view: number, size: number, row: number): number {
  const top = row * size
  if (top < offset) return top
  return top + size > offset + view ? top + size - view : offset
}
