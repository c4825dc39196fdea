// A range of cells to the clipboard, for spreadsheets.

import { fetchWindow } from '../../data/tensors'
import { rowsOf, type Window } from '../../data/tiles'
import { tell, tellError } from '../../ui/toasts'
import { tsvOf, type Cell } from '../../views/cells'
import { copyText } from '../../views/clipboard'
import type { Shown } from './useTable'

const MAX_COPIED = 100_000
const MAX_CELLS = 10_000

async function cellsOf({ part, tiles }: Shown, [r0, r1]: Window, [c0, c1]: Window): Promise<Cell[][]> {
  const known = Array.from({ length: r1 - r0 }, (_, i) => Array.from({ length: c1 - c0 }, (_, j) => tiles.cell(r0 + i, c0 + j)))
  if (known.every((row) => row.every((cell) => cell !== undefined))) return known as Cell[][]
  const height = Math.floor(MAX_CELLS / (c1 - c0))
  const found: Cell[][] = []
  for (let row = r0; row < r1; row += height) found.push(...rowsOf(await fetchWindow(part, [row, Math.min(r1, row + height)], [c0, c1])))
  return found
}

export async function copyCells(shown: Shown, rows: Window, columns: Window): Promise<void> {
  const [n_rows, n_columns] = [rows[1] - rows[0], columns[1] - columns[0]]
  if (n_rows * n_columns > MAX_COPIED || n_columns > MAX_CELLS) {
    tell('error', `At most ${MAX_COPIED.toLocaleString('en')} cells are copied at once: narrow the slice, or download it.`)
    return
  }
  try {
    await copyText(tsvOf(await cellsOf(shown, rows, columns), shown.head.dtype))
    tell('done', `Copied ${n_rows.toLocaleString('en')} × ${n_columns.toLocaleString('en')} ${n_rows * n_columns === 1 ? 'cell' : 'cells'}`)
  } catch (error) {
    if (error instanceof DOMException) tell('error', 'The browser refused to copy. Download the slice instead.')
    else tellError(error)
  }
}
