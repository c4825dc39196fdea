// The commands that runs applied, as marks in their charts.

import { computed, type ReadonlySignal } from '@preact/signals'
import { details } from '../../data/details'
import { styleOfRun } from '../../data/looks'
import { labelOf, shown } from '../../data/runs'
import type { Run, XKind } from '../../data/types'
import type { Mark } from '../../views/draw'
import { commandText, placeOf } from './history'

export interface CommandMark extends Mark {
  run: string
}

/** The commands of some runs on an axis; with `only`, those of one control or action. */
export const marksOf = (runs: readonly Run[], kind: XKind, only = ''): CommandMark[] =>
  runs.flatMap((run) =>
    (details.of(run.key)?.history ?? []).flatMap((entry): CommandMark[] => {
      const x = only && entry.name !== only ? null : placeOf(entry, kind, run.started)
      return x === null ? [] : [{ x, label: `${labelOf(run.key)}: ${commandText(entry)}`, color: styleOfRun(run.key).color, run: run.key }]
    }),
  )

/** A signal that keeps its value as long as a new one is equal. */
function steady<T>(make: () => T): ReadonlySignal<T> {
  let [last, text] = [undefined as T | undefined, '']
  return computed(() => {
    const now = make()
    const written = JSON.stringify(now)
    if (written !== text) [last, text] = [now, written]
    return last as T
  })
}

/** The marks of all visible runs, on each axis. */
export const marks = { step: steady(() => marksOf(shown.value, 'step')), relative: steady(() => marksOf(shown.value, 'relative')), wall: steady(() => marksOf(shown.value, 'wall')) }
