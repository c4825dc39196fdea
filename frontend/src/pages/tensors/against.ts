// The tensor to compare with: `run@when`; an empty run is the same one.

import type { When } from '../../data/tensors'
import { nearest } from '../../views/bounds'

export interface Against {
  run: string
  /** A step, or which one it is as seen from the step that is shown. */
  when: number | When
}

export function readAgainst(text: string): Against | null {
  const at = text.lastIndexOf('@')
  if (at < 0) return null
  const [run, when] = [text.slice(0, at), text.slice(at + 1)]
  if (when === 'same' || when === 'previous' || when === 'first') return { run, when }
  return when !== '' && Number.isFinite(Number(when)) ? { run, when: Number(when) } : null
}

export const writeAgainst = ({ run, when }: Against): string => `${run}@${when}`

/** The step of the other series: the nearest that it has; null where there is none. */
export function otherStep({ when }: Against, step: number, steps: readonly number[]): number | null {
  if (steps.length === 0) return null
  if (when === 'first') return steps[0]!
  if (when === 'previous') return [...steps].reverse().find((one) => one < step) ?? steps[0]!
  return steps[nearest(steps, when === 'same' ? step : when)]!
}
