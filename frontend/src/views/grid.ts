// The grid of pictures that fills a box.

const GAP = 8
const MIN_TILE = 84

export interface Grid {
  columns: number
  /** The width of each picture, in CSS pixels. */
  tile: number
}

/**
 * The grid in which `n` pictures are largest in a box.
 *
 * @param ratio - Width by height of the pictures.
 * @param below - The height of a caption.
 */
export function gridOf(n: number, width: number, height: number, ratio: number, below = 0): Grid {
  let best: Grid = { columns: 1, tile: 0 }
  for (let columns = 1; columns <= n; columns++) {
    const rows = Math.ceil(n / columns)
    const wide = (width - GAP * (columns - 1)) / columns
    const high = ((height - GAP * (rows - 1)) / rows - below) * ratio
    const tile = Math.floor(Math.min(wide, high))
    if (tile > best.tile) best = { columns, tile }
  }
  if (best.tile >= MIN_TILE) return best
  // Too many for the box: it scrolls.
  const columns = Math.max(1, Math.floor((width + GAP) / (MIN_TILE + GAP)))
  return { columns, tile: Math.max(1, Math.floor((width - GAP * (columns - 1)) / columns)) }
}
