// What was done to the runs: marks in their charts.

import { computed, type ReadonlySignal } from '@preact/signals'
import { histories } from '../../data/details'
import { labelOf, shown, styleOfRun } from '../../data/runs'
import type { XKind } from '../../data/types'
import type { Mark } from '../../views/draw'
import { actText, placeOf } from './acts'

export interface ActMark extends Mark {
  run: string
}

const marksBy = (kind: XKind): ActMark[] =>
  shown.value.flatMap((run) =>
    (histories.value.get(run.key) ?? []).flatMap((act): ActMark[] => {
      const x = placeOf(act, kind, run.started)
      return x === null ? [] : [{ x, label: `${labelOf(run.key)}: ${actText(act)}`, color: styleOfRun(run.key).color, run: run.key }]
    }),
  )

/** The same value until it says something else. */
function steady<T>(make: () => T): ReadonlySignal<T> {
  let [last, text] = [undefined as T | undefined, '']
  return computed(() => {
    const now = make()
    const written = JSON.stringify(now)
    if (written !== text) [last, text] = [now, written]
    return last as T
  })
}

/** The marks of all runs that are drawn, on each axis. */
export const marks = { step: steady(() => marksBy('step')), relative: steady(() => marksBy('relative')), wall: steady(() => marksBy('wall')) }
