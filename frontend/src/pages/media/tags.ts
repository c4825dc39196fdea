// The tags of several runs, together.

import { inOrder } from '../../data/order'
import type { Tag, TagType } from '../../data/types'
import { number } from '../../views/format'

export const KINDS: readonly TagType[] = ['image', 'figure', 'audio', 'table', 'text']

export interface MediaTag extends Tag {
  /** Its name in each run that has it, by the runs' keys. */
  runs: ReadonlyMap<string, string>
}

/** Every tag of a kind that has something to see, once for each page that shows it, in a natural order of the names. */
export function mergedTags(perRun: ReadonlyMap<string, readonly Tag[]>): MediaTag[] {
  const found = new Map<string, MediaTag>()
  for (const [run, tags] of perRun) {
    for (const tag of tags) {
      if (!KINDS.includes(tag.type)) continue
      // Files of other programs do not tell figures from images.
      const kind = `${tag.type === 'figure' ? 'image' : tag.type} ${tag.tag}`
      const known = found.get(kind)
      if (!known) found.set(kind, { ...tag, runs: new Map([[run, tag.name]]) })
      else if (!known.runs.has(run)) found.set(kind, { ...known, runs: new Map(known.runs).set(run, tag.name), n: Math.max(known.n, tag.n) })
    }
  }
  return [...found.values()].sort((a, b) => inOrder(a.tag, b.tag))
}

/** All steps that any of several series has, in order. */
export function mergedSteps(series: readonly (readonly number[])[]): number[] {
  return [...new Set(series.flat())].sort((a, b) => a - b)
}

/** The last step that a series has until a step: what one would have seen then; null before its first. */
export function stepUntil(steps: readonly number[], step: number): number | null {
  let found: number | null = null
  for (const one of steps) if (one <= step) found = one
  return found
}

/** What a run shows at a step of the slider. */
export function noteOfStep(steps: readonly number[], step: number): string {
  const mine = stepUntil(steps, step)
  if (mine === null) return steps.length ? `begins at step ${number(steps[0]!, 12)}` : ''
  return `step ${number(mine, 12)}${mine !== step ? ', the last until then' : ''}`
}

/** The parts of a text that are as searched for, and those between; what was searched for stands at odd places. */
export function splitBy(text: string, wanted: string): string[] {
  if (!wanted) return [text]
  const escaped = wanted.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return text.split(new RegExp(`(${escaped})`, 'gi'))
}
