// The table of a run at a step: found, sorted and paged by the server.

import { useEffect, useMemo, useState } from 'preact/hooks'
import { useRows } from '../../data/media'
import { labelOf } from '../../data/runs'
import { at, update } from '../../state/state'
import { SheetTable, type Sorting } from '../../views/SheetTable'
import { AtStep, type AtStepProps } from './AtStep'
import { isCurve, PrCurve } from './PrCurve'
import { stepUntil } from './tags'

const N_ROWS = 50

export function SheetOf(props: AtStepProps) {
  const { run, tag, series, steps, step } = props
  const mine = stepUntil(steps, step)
  const chosen = at.rowsort.value
  const descending = chosen.startsWith('-')
  const sorting = useMemo((): Sorting | null => (chosen ? { column: chosen.slice(descending ? 1 : 0), descending } : null), [chosen])
  const [offset, setOffset] = useState(0)
  const find = at.words.value
  useEffect(() => setOffset(0), [find, sorting, mine])
  const found = useRows(run.key, series, mine, { find, sort: sorting?.column ?? '', descending: String(sorting?.descending ?? false), offset, limit: N_ROWS })
  const sheet = mine === null ? null : found.value
  const [n, all] = [sheet?.n_found ?? 0, sheet?.n_rows ?? 0]
  const told = n < all ? `${n.toLocaleString('en')} of ${all.toLocaleString('en')} rows` : `${all.toLocaleString('en')} ${all === 1 ? 'row' : 'rows'}`
  return (
    <AtStep {...props} problem={found.problem} more={sheet ? told : ''} class="media-sheet">
      {sheet && isCurve(sheet.columns) && <PrCurve run={run} tag={tag} series={series} step={mine} />}
      {sheet && (
        <div class={`media-sheet-body ${found.fresh ? '' : 'is-stale'}`}>
          <SheetTable name={`${tag} of ${labelOf(run.key)}`} {...sheet} sorting={sorting} onSort={(next) => update({ rowsort: next ? `${next.descending ? '-' : ''}${next.column}` : '' })} />
        </div>
      )}
      {n > N_ROWS && (
        <footer class="media-pager">
          <button type="button" class="button" disabled={offset === 0} onClick={() => setOffset(Math.max(0, offset - N_ROWS))}>
            Previous
          </button>
          <span>
            {(offset + 1).toLocaleString('en')} to {Math.min(offset + N_ROWS, n).toLocaleString('en')}
          </span>
          <button type="button" class="button" disabled={offset + N_ROWS >= n} onClick={() => setOffset(offset + N_ROWS)}>
            Next
          </button>
        </footer>
      )}
    </AtStep>
  )
}
