// How a control is shown, and the value that a slider stands for.

import type { ControlInfo } from '../data/types'
import { value as shown } from '../views/format'

/** The bounds of a control; null for an infinite one, which JSON has as a text. */
const bounds = ({ min, max }: ControlInfo) => [min, max].map((bound) => (typeof bound === 'number' ? bound : null)) as [number | null, number | null]

export type ControlKind = 'switch' | 'choice' | 'slider' | 'number' | 'text'

export function kindOf(control: ControlInfo): ControlKind {
  if (control.choices?.length) return 'choice'
  if (control.type === 'bool' || typeof control.value === 'boolean') return 'switch'
  if (!['int', 'float'].includes(control.type) && typeof control.value !== 'number') return 'text'
  return bounds(control).includes(null) ? 'number' : 'slider'
}

/** A slider over several powers of ten moves in powers of ten. */
export function isLogarithmic(control: ControlInfo): boolean {
  const { type, value } = control
  const [min, max] = bounds(control)
  if (type === 'int' || min === null || max === null || min < 0) return false
  return max / (min || Math.min(max / 1e6, Number(value) || max)) >= 1000
}

const lowest = (min: number, max: number): number => min || max / 1e6

/** The place of a value on a slider from 0 to 1000. */
export function placeOf(control: ControlInfo, value: number): number {
  const [min, max] = bounds(control) as [number, number]
  if (!isLogarithmic(control)) return (1000 * (value - min)) / (max - min)
  const low = lowest(min, max)
  return value <= low ? 0 : 1000 * (Math.log(value / low) / Math.log(max / low))
}

export function valueAt(control: ControlInfo, place: number): number {
  const [min, max] = bounds(control) as [number, number]
  const low = lowest(min, max)
  if (place <= 0) return min
  if (place >= 1000) return max
  const exact = isLogarithmic(control) ? low * (max / low) ** (place / 1000) : min + ((max - min) * place) / 1000
  return control.type === 'int' ? Math.round(exact) : Number(exact.toPrecision(3))
}

/** Why a number is refused, or null. The run checks again. */
export function problemOf(control: ControlInfo, value: number): string | null {
  const { type } = control
  const [min, max] = bounds(control)
  if (!Number.isFinite(value)) return 'Expected a number'
  if (type === 'int' && !Number.isInteger(value)) return 'Expected a whole number'
  if (min !== null && value < min) return `Expected at least ${min}`
  if (max !== null && value > max) return `Expected at most ${max}`
  return null
}

/** The type and bounds of a control, in words. */
export function boundsOf(control: ControlInfo): string {
  const { type, choices } = control
  const [min, max] = bounds(control)
  if (choices?.length || type === 'bool') return ''
  if (min !== null && max !== null) return `${type}, ${shown(min)} to ${shown(max)}${isLogarithmic(control) ? ', in powers of ten' : ''}`
  if (min !== null) return `${type}, at least ${shown(min)}`
  return max !== null ? `${type}, at most ${shown(max)}` : type
}
