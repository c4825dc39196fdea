// The table of a part of a tensor, with all that can be done with it.

import { useEffect, useMemo, useState } from 'preact/hooks'
import { fetchFound, type Other, type Part, type Place } from '../../data/tensors'
import { isTensor } from '../../data/tags'
import type { Tag } from '../../data/types'
import { at, update } from '../../state/state'
import { dark } from '../../state/theme'
import { Empty } from '../../ui/parts'
import { tell, tellError } from '../../ui/toasts'
import { Cells } from '../../views/Cells'
import { ColorKey } from '../../views/ColorKey'
import type { Spot } from '../../views/cellsPaint'
import { cellText, rampOf, shortest, type Cell } from '../../views/cells'
import { cellAt, entriesOf, indexAt, showing, sliceOf } from '../../views/slices'
import { copyCells } from './copy'
import { HeatView } from './HeatView'
import { Minus } from './Minus'
import { SliceBar } from './SliceBar'
import { StatisticsTable } from './StatisticsTable'
import { Tools } from './Tools'
import { useTable, type Shown } from './useTable'

interface TableViewProps {
  run: string
  tag: Tag
  step: number
  /** What it is compared with: at a step, null while its steps are unknown, and over all steps. */
  other: (Other & { step: number }) | null
  others: Other | null
  onBusy: (busy: boolean) => void
}

/** The slice as typed, and its tensor: it is not fitted, so that its error is shown. */
let typed: string | null = null
const typing = (run: string, tag: string, slice: string) => `${run}\n${tag}\n${slice}`

export function TableView({ run, tag: shownTag, step, other, others, onBusy }: TableViewProps) {
  const { tag, name: series } = shownTag
  const slice = at.slice.value
  const part: Part | null = others && !other ? null : { run, tag: series, step, slice, fit: typing(run, series, slice) !== typed, other }
  const table = useTable(part)
  const { shown } = table
  const [turns, setTurns] = useState(0)
  useEffect(() => onBusy(!table.fresh && !table.problem), [table.fresh, table.problem])

  const entries = useMemo(() => shown && entriesOf(shown.head.slice, shown.head.shape.length), [shown])
  const marked = useMemo((): Spot | null => {
    const index = at.cell.value ? at.cell.value.split(',').map(Number) : null
    return shown && entries && index ? cellAt(entries, shown.head.shape, index) : null
  }, [shown, entries, at.cell.value])

  const magnitude = shown?.head.dtype.startsWith('complex') ? ', of |z|' : ''
  const onSlice = (next: string) => {
    typed = typing(run, series, next)
    update({ slice: next })
  }
  const mark = ([row, column]: Spot) => shown && entries && update({ cell: indexAt(entries, shown.head.shape, row, column).join(',') })
  const show = (index: readonly number[], at_step: number) => {
    if (!shown || !entries) return
    const next = sliceOf(showing(entries, shown.head.shape, index))
    update({ cell: index.join(','), ...(next !== sliceOf(entries) && { slice: next }), ...(at_step !== step && { step: at_step }) })
    setTurns((n) => n + 1)
  }
  const find = async (what: Place, name: string, everywhere: boolean) => {
    try {
      const found = await fetchFound(everywhere ? { run, tag: series, other: others } : { run, tag: series, step, other }, what)
      if (found.found) show(found.index, found.step ?? step)
      else tell('done', `There is ${what === 'zero' ? 'nothing' : 'no'} ${name} in ${other ? 'the comparison' : tag}${everywhere ? ' at any step' : ` at step ${step}`}.`)
    } catch (error) {
      tellError(error)
    }
  }

  return (
    <>
      {shown ? (
        <SliceBar shape={shown.head.shape} slice={shown.head.slice} asked={slice} problem={table.problem} onSlice={onSlice} />
      ) : (
        table.problem && (
          <div class="tensor-problem">
            <pre class="query-problem" role="alert">
              {table.problem}
            </pre>
            {slice && (
              <button type="button" class="button" onClick={() => update({ slice: '' })}>
                Show it without the slice {slice}
              </button>
            )}
            {other && <Minus run={run} tag={shownTag} step={step} other={other.step} />}
          </div>
        )
      )}
      {shown && (
        <>
          {isTensor(shownTag) && (
            <>
              <StatisticsTable
                problem={table.statistics.problem}
                rows={[
                  [`slice${magnitude}`, table.statistics.value?.slice ?? null],
                  [`whole${magnitude}`, table.statistics.value?.whole ?? null],
                ]}
              />
              <Tools shown={shown} run={run} tag={shownTag} step={step} other={other} onFind={(...what) => void find(...what)} />
            </>
          )}
          <div class={`tensor-body ${at.heat.value ? 'has-heat' : ''} ${table.fresh ? '' : 'is-stale'}`}>
            <CellsBox table={table} shown={shown} entries={entries ?? []} tag={tag} marked={marked} turns={turns} onMark={mark} />
            {at.heat.value && shown.head.dtype !== 'str' && shown.head.n_rows !== null && shown.rows.n * (shown.columns?.n ?? 1) > 0 && (
              <HeatView
                shown={shown}
                bound={at.shade.value === 'most' ? table.most : undefined}
                onPick={(row, column) => {
                  mark([row, column])
                  setTurns((n) => n + 1)
                }}
              />
            )}
          </div>
        </>
      )}
      {!shown && !table.problem && <div class="panel-wait" role="status" aria-label="Reading the tensor" />}
    </>
  )
}

interface CellsBoxProps {
  table: ReturnType<typeof useTable>
  shown: Shown
  entries: string[]
  tag: string
  marked: Spot | null
  turns: number
  onMark: (spot: Spot) => void
}

function CellsBox({ table, shown, entries, tag, marked, turns, onMark }: CellsBoxProps) {
  const [hovered, setHovered] = useState<Spot | null>(null)
  const { head, rows, columns } = shown
  const bound = at.shade.value === 'none' || head.dtype === 'str' ? null : at.shade.value === 'max' ? table.max : table.most
  const signed = !head.dtype.startsWith('complex')
  const format = { notation: at.notation.value, digits: at.digits.value }
  const spot = hovered ?? marked
  const value = spot && table.cell(...spot)
  const index = spot && entries.length ? indexAt(entries, head.shape, ...spot) : []
  if (rows.n === 0 || columns?.n === 0) {
    return (
      <Empty title="No values" mark={false}>
        <p>
          {head.shape.includes(0) ? `A tensor of shape (${head.shape.join(', ')}) holds none.` : `The slice ${head.slice} chooses none of shape (${head.shape.join(', ')}).`}
        </p>
      </Empty>
    )
  }
  if (head.n_rows === null) {
    return (
      <div class="tensor-number">
        <output aria-label={`Value of ${tag}${head.slice}`}>{value === undefined || value === null ? exact(table.cell(0, 0), head.dtype) : exact(value, head.dtype)}</output>
        <span class="muted">
          {tag}
          {head.shape.length > 0 && head.slice}
        </span>
      </div>
    )
  }
  return (
    <div class="cells-box">
      <Cells
        label={`${tag}, ${rows.n} rows${columns ? `, ${columns.n} columns` : ''}`}
        dtype={head.dtype}
        rows={rows}
        columns={columns}
        cell={table.cell}
        format={format}
        bound={bound}
        max={table.max}
        dark={dark.value}
        marked={marked}
        turns={turns}
        onMark={onMark}
        onHover={(next) => setHovered((old) => (String(old) === String(next) ? old : next))}
        onSight={table.see}
        onCopy={(r, c) => void copyCells(shown, r, c)}
      />
      <p class="cells-foot">
        {table.cellProblem ? (
          <span class="field-problem">{table.cellProblem}</span>
        ) : spot ? (
          <span>
            <span class="muted">[{index.join(', ')}]</span> {exact(value ?? undefined, head.dtype)}
          </span>
        ) : (
          <span class="cells-hint muted">Point at a cell to read it in full; drag or Shift+arrows choose a range, Ctrl+C copies it</span>
        )}
        {bound !== null && bound > 0 && head.dtype !== 'bool' && (
          <ColorKey low={signed ? -bound : 0} high={bound} colors={rampOf(dark.value, signed)} label={signed ? 'Colours of the cells' : 'Colours of the cells, by magnitude'} />
        )}
      </p>
    </div>
  )
}

/** All the digits that a value has. */
const exact = (cell: Cell | undefined, dtype: string): string =>
  cell === undefined ? '…' : typeof cell === 'number' && Number.isFinite(cell) ? shortest(cell, dtype).replaceAll('-', '−') : cellText(cell, { notation: 'auto', digits: 17 }, dtype)
