// What was done to a run: in words, and where it stands on an axis.

import type { Act, XKind } from '../../data/types'
import { value } from '../../views/format'

/** What was done, in one line: `lr 0.1 → 0.01`, `checkpoint()`, `stop`. */
export function actText({ kind, name, value: now, old, error }: Act): string {
  const args = Array.isArray(now) ? now.map(value).join(', ') : ''
  const done = kind === 'set' ? `${name} ${old === undefined || old === null ? '' : `${value(old)} `}→ ${value(now)}` : kind === 'call' ? `${name}(${args})` : kind
  return error ? `${done}: ${error}` : done
}

/** Where an act stands on an axis; null where that is not known. */
export function placeOf(act: Act, kind: XKind, started: number | null): number | null {
  const [step, wall] = [act.step ?? null, act.wall_time ?? null]
  if (kind === 'step') return step
  if (kind === 'wall') return wall
  return wall === null || started === null ? null : wall - started
}
