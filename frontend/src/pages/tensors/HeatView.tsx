// The heat map of the slice that the table shows; a click opens the cell in the table.

import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useFetched } from '../../data/fetched'
import { fetchPicture, fetchWindow } from '../../data/tensors'
import { rowsOf } from '../../data/tiles'
import { tellError } from '../../ui/toasts'
import { sizeOf } from '../../views/cells'
import { Heat, type Block } from '../../views/Heat'
import { dark } from '../../state/theme'
import type { Shown } from './useTable'

/** The most rows and columns to request: at most one for each pixel, or single values would be lost. */
const THINS = [512, 256, 128] as const
const MAX_CELLS = 10_000

interface HeatViewProps {
  shown: Shown
  /** The magnitude with the strongest colour; by default the largest. */
  bound?: number
  onPick: (row: number, column: number) => void
}

export function HeatView({ shown, bound, onPick }: HeatViewProps) {
  const { part, rows, columns } = shown
  const [box, thin] = useThin()
  const found = useFetched(thin ? JSON.stringify([part, thin]) : null, () => fetchPicture(part, thin))
  const matrix = useMemo(() => {
    if (!found.value) return null
    const [height = 1, width = 1] = found.value.shape
    return { rows: height, columns: width, data: found.value.data }
  }, [found.value])
  // A vector lies on its side.
  const whole = columns ? ([rows.n, columns.n] as const) : ([1, rows.n] as const)
  const nameOf = (row: number, column: number) =>
    columns ? `[${rows.start + rows.step * row}, ${columns.start + columns.step * column}]` : `[${rows.start + rows.step * column}]`
  const pick = (block: Block) => {
    const [r, c] = columns ? [block.rows, block.columns] : [block.columns, block.rows]
    if ((r[1] - r[0]) * (c[1] - c[0]) > MAX_CELLS) return onPick(r[0], c[0])
    extremeIn(shown, r, c).then(([row, column]) => onPick(row, column), tellError)
  }
  return (
    <div class="heat-side" ref={box}>
      {found.problem ? (
        <p class="banner">{found.problem}</p>
      ) : matrix && matrix.data.length ? (
        <Heat matrix={matrix} dark={dark.value} bound={bound} whole={whole} nameOf={nameOf} onPick={pick} />
      ) : (
        <div class="panel-wait" role="status" aria-label="Drawing" />
      )}
    </div>
  )
}

function useThin() {
  const box = useRef<HTMLDivElement>(null)
  const [thin, setThin] = useState(0)
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => {
      const { width, height } = entry!.contentRect
      const room = Math.min(width, height - 30) * devicePixelRatio
      setThin(THINS.find((n) => n <= room) ?? THINS[THINS.length - 1]!)
    })
    sizes.observe(box.current!)
    return () => sizes.disconnect()
  }, [])
  return [box, thin] as const
}

/** The cell of a block that gave the pixel its colour. */
async function extremeIn({ part }: Shown, rows: [number, number], columns: [number, number]): Promise<[number, number]> {
  const cells = rowsOf(await fetchWindow(part, rows, columns))
  let best: [number, number] = [0, 0]
  let most = -1
  cells.forEach((row, i) =>
    row.forEach((cell, j) => {
      const size = Math.abs(sizeOf(cell))
      const rank = Number.isNaN(size) ? Infinity : size
      if (rank > most) [best, most] = [[i, j], rank]
    }),
  )
  return [rows[0] + best[0], columns[0] + best[1]]
}
