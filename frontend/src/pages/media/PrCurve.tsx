// The precision over the recall of a table that has both, such as TensorBoard's curves.

import { signal } from '@preact/signals'
import { useMemo } from 'preact/hooks'
import { useRows } from '../../data/media'
import { styleOfRun } from '../../data/looks'
import { labelOf } from '../../data/runs'
import type { Run } from '../../data/types'
import { dark } from '../../state/theme'
import type { Cursor } from '../../views/Chart'
import type { Line } from '../../views/draw'
import { SoloChart } from '../../views/SoloChart'
import type { Span } from '../../views/span'

const cursor = signal<Cursor | null>(null)
const MAX_POINTS = 2_000
const HOME: [Span, Span] = [[0, 1], [0, 1.05]]

export const isCurve = (columns: readonly { name: string }[]): boolean => ['precision', 'recall'].every((name) => columns.some((column) => column.name === name))

export function PrCurve({ run, tag, series, step }: { run: Run; tag: string; series: string; step: number | null }) {
  const found = useRows(run.key, series, step, { sort: 'recall', limit: MAX_POINTS })
  const sheet = found.value
  const style = styleOfRun(run.key)
  const lines = useMemo((): Line[] => {
    const column = (name: string) => sheet!.columns.findIndex((one) => one.name === name)
    const numbers = (name: string) => Float64Array.from(sheet!.rows, (row) => Number(row[column(name)]))
    return sheet ? [{ id: run.key, label: labelOf(run.key), style, x: numbers('recall'), y: numbers('precision') }] : []
  }, [sheet, style])
  if (!sheet) return null
  return (
    <div class={`media-curve ${found.fresh ? '' : 'is-stale'}`}>
      <SoloChart id={`curve ${run.key}`} title={`Precision over recall, ${tag}`} lines={lines} xname="recall" home={HOME} dark={dark.value} cursor={cursor} />
      <p class="muted media-curve-name">
        precision over recall, {sheet.n_rows.toLocaleString('en')} thresholds{sheet.n_found > MAX_POINTS && `, the first ${MAX_POINTS.toLocaleString('en')} shown`}
      </p>
    </div>
  )
}
