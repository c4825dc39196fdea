// Where somebody acted on a run that is drawn: a thin line in every chart.

import { computed } from '@preact/signals'
import { histories } from '../../data/details'
import { shown } from '../../data/runs'
import type { XKind } from '../../data/types'
import type { Mark } from '../../views/draw'

const by = (kind: XKind) =>
  computed<Mark[]>(() =>
    shown.value.flatMap((run) =>
      (histories.value.get(run.key) ?? []).flatMap((act): Mark[] => {
        const wall = act.wall_time ?? null
        const x = kind === 'step' ? act.step : kind === 'wall' ? wall : wall !== null && run.started !== null ? wall - run.started : null
        return typeof x === 'number' ? [{ x, label: `${act.kind} ${act.name ?? ''}` }] : []
      }),
    ),
  )

const marks = { step: by('step'), relative: by('relative'), wall: by('wall') }
let [last, text] = [[] as Mark[], '[]']

export function marksOf(kind: XKind): Mark[] {
  const now = marks[kind].value
  const written = JSON.stringify(now)
  if (written !== text) [last, text] = [now, written]
  return last
}
