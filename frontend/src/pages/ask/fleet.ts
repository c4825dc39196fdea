// A fleet: several live runs asked as one. A pattern of names, such as `sweep-*`, stands where the key of a run does.

import type { Run } from '../../data/types'
import type { AskedStream } from './panels'

/** Twice as many as lines can be told apart by colour and dash. */
export const MAX_RUNS = 64

export const isPattern = (run: string): boolean => /[*?[]/.test(run)

/** The pattern for what was typed: a text without a wildcard is the beginning of a name. */
export function patternOf(text: string): string {
  const one = text.replace(/[|\n]/g, '').trim() // the URL separates by these
  return isPattern(one) ? one : `${one}*`
}

/** Whether a name matches a pattern, as in `sightglass watch`: `*`, `?`, `[abc]` and `[!abc]`. */
export function matches(pattern: string, name: string): boolean {
  const parts = pattern.replace(/\[(!?)([^\]]+)\]|./gs, (one, not: string, among?: string) => {
    if (among !== undefined) return `[${not && '^'}${among.replace(/[\\[^]/g, '\\$&')}]`
    return { '*': '.*', '?': '.' }[one] ?? one.replace(/[\\^$.|+()[\]{}]/g, '\\$&')
  })
  try {
    return new RegExp(`^${parts}$`, 's').test(name)
  } catch {
    return false // such as [z-a]
  }
}

/** The runs whose names match a pattern, in the order in which they began. */
export function membersOf(pattern: string, among: readonly Run[]): Run[] {
  const found = among.filter(({ name }) => matches(pattern, name))
  return found.sort((a, b) => (a.started ?? 0) - (b.started ?? 0) || (a.key < b.key ? -1 : 1))
}

/** A stream of one run. */
export interface RunStream extends AskedStream {
  /** The place of the stream that it belongs to, among those of the panel. */
  of: number
}

/** The streams of a panel, with one for each of the newest runs where a pattern stands. */
export function streamsOfRuns(asked: readonly AskedStream[], among: readonly Run[]): RunStream[] {
  return asked.flatMap((one, of) => {
    const keys = isPattern(one.run) ? membersOf(one.run, among).slice(-MAX_RUNS).map(({ key }) => key) : [one.run]
    return keys.map((run) => ({ ...one, run, of }))
  })
}
