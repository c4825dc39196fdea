// A part of a tensor as a table: its shape, its cells as they come into sight, its statistics.

import { useEffect, useMemo, useRef } from 'preact/hooks'
import { useFetched } from '../../data/fetched'
import { fetchStatistics, fetchWindow, type Part, type Table } from '../../data/tensors'
import { rowsOf, Tiles, type Window } from '../../data/tiles'
import { boundOf, sizeOf, type Cell } from '../../views/cells'
import type { Axis } from '../../views/slices'

export interface Shown {
  part: Part
  head: Table
  rows: Axis
  /** Null where the slice has no second dimension. */
  columns: Axis | null
  tiles: Tiles
}

const axis = (places: readonly number[], n: number): Axis => ({ start: places[0] ?? 0, step: places.length > 1 ? places[1]! - places[0]! : 1, n })

function shownOf(part: Part, head: Table): Shown {
  const [n_rows, n_columns] = [head.n_rows ?? 1, head.n_columns ?? 1]
  // Visible cells are requested by the fitted slice, so that they never come from another one.
  const exact = { ...part, slice: head.slice, fit: false }
  const load = async (rows: Window, columns: Window, abort: AbortSignal): Promise<Cell[][]> => rowsOf(await fetchWindow(exact, rows, columns, abort))
  return {
    part: exact,
    head,
    rows: head.n_rows === null ? { start: 0, step: 1, n: 1 } : axis(head.rows, n_rows),
    columns: head.n_columns === null ? null : axis(head.columns, n_columns),
    tiles: new Tiles(n_rows, n_columns, load),
  }
}

const FIRST: Window = [0, 2]
const N_SIGMA = 4

export function useTable(part: Part | null) {
  const key = part && JSON.stringify(part)
  const asked = useRef(part)
  asked.current = part
  const head = useFetched(key, async (abort) => ({ part: part!, head: await fetchWindow(part!, FIRST, FIRST, abort) }))
  const shown = useMemo(() => head.value && shownOf(head.value.part, head.value.head), [head.value])
  const statistics = useFetched(shown ? JSON.stringify(shown.part) : null, (abort) => fetchStatistics(shown!.part, abort))
  const sight = useRef<[Window, Window]>([FIRST, FIRST])
  const before = useRef<Shown | null>(null)

  useEffect(() => {
    if (!shown) return
    shown.tiles.see(...sight.current)
    return () => {
      shown.tiles.close()
      before.current = shown
    }
  }, [shown])

  const version = shown?.tiles.version.value ?? 0
  const old = before.current && shown && before.current.rows.n === shown.rows.n && before.current.columns?.n === shown.columns?.n ? before.current.tiles : null
  // Until the cells of another step are there, those of the one before stand in, faded.
  const cell = useMemo(() => (row: number, column: number) => shown?.tiles.cell(row, column) ?? old?.cell(row, column), [shown, version, old])
  const arrived = shown ? shown.tiles.cell(sight.current[0][0], sight.current[1][0]) !== undefined || shown.rows.n * (shown.columns?.n ?? 1) === 0 : false

  const reply = statistics.value
  const { max, most } = useMemo(() => {
    const of = reply?.whole ?? reply?.slice
    const max = of ? boundOf([sizeOf(of.min), sizeOf(of.max)]) : shown ? boundOf([...shown.tiles.values()].map(sizeOf)) : 0
    const most = of ? Math.abs(sizeOf(of.mean)) + N_SIGMA * sizeOf(of.std) : max
    return { max, most: most > 0 ? Math.min(max, most) : max }
  }, [reply, reply ? 0 : version, shown])

  const see = (rows: Window, columns: Window) => {
    sight.current = [rows, columns]
    shown?.tiles.see(rows, columns)
  }
  return { shown, problem: head.problem, fresh: head.fresh && arrived, cell, max, most, statistics, see, cellProblem: shown?.tiles.problem.value ?? null }
}
