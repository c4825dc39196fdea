// The commands in a run's history: in words, and their place on an axis.

import type { HistoryEntry, XKind } from '../../data/types'
import { value } from '../../views/format'

/** A command in one line: `lr 0.1 → 0.01`, `checkpoint()`, `stop`; an alert is its title. */
export function commandText({ kind, name, value: now, old, error }: HistoryEntry): string {
  const args = Array.isArray(now) ? now.map(value).join(', ') : ''
  const done = kind === 'set' ? `${name} ${old === undefined || old === null ? '' : `${value(old)} `}→ ${value(now)}` : kind === 'call' ? `${name}(${args})` : kind === 'alert' ? (name ?? '') : kind
  return error ? `${done}: ${error}` : done
}

/** The place of a command on an axis, or null if it is unknown. */
export function placeOf(entry: HistoryEntry, kind: XKind, started: number | null): number | null {
  const [step, wall] = [entry.step ?? null, entry.wall_time ?? null]
  if (kind === 'step') return step === null || Number.isNaN(Number(step)) ? null : Number(step)
  if (kind === 'wall') return wall
  return wall === null || started === null ? null : wall - started
}
