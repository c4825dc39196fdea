// A table of any size in tiles: visible tiles are fetched, recent ones cached.

import { signal } from '@preact/signals'
import type { Cell } from '../views/cells'

export const MAX_TILE = 8_192
const MAX_KEPT = 160

export type Window = [from: number, end: number]
export type LoadTile = (rows: Window, columns: Window, abort: AbortSignal) => Promise<Cell[][]>

/** How many rows and columns a tile has. */
export function tileSize(n_columns: number): [rows: number, columns: number] {
  const columns = Math.max(1, Math.min(64, n_columns))
  return [Math.min(4_096, Math.floor(MAX_TILE / columns)), columns]
}

/** The numbers of the tiles that cover a window, nearest to its middle first. */
export function tilesIn(window: Window, size: number): number[] {
  const [from, end] = window
  const found: number[] = []
  for (let i = Math.floor(from / size); i * size < end; i++) found.push(i)
  const middle = (from + end) / 2 / size - 0.5
  return found.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))
}

/** The values of a window as rows of cells, whatever its dimensions. */
export function rowsOf({ values }: { values: Cell | Cell[] | Cell[][] }): Cell[][] {
  if (!Array.isArray(values)) return [[values]]
  return (values as (Cell | Cell[])[]).map((row) => (Array.isArray(row) ? row : [row]))
}

interface Tile {
  cells: Cell[][] | null
  abort: AbortController
}

export class Tiles {
  /** Counts up whenever there is more to see. */
  readonly version = signal(0)
  readonly problem = signal<string | null>(null)
  private readonly tiles = new Map<string, Tile>()
  private readonly size: [number, number]

  constructor(
    readonly n_rows: number,
    readonly n_columns: number,
    private readonly load: LoadTile,
  ) {
    this.size = tileSize(n_columns)
  }

  cell(row: number, column: number): Cell | undefined {
    const [height, width] = this.size
    const tile = this.tiles.get(`${Math.floor(row / height)} ${Math.floor(column / width)}`)
    return tile?.cells?.[row % height]?.[column % width]
  }

  /** Fetch visible tiles; cancel requests for tiles that are no longer visible. */
  see(rows: Window, columns: Window): void {
    const wanted = tilesIn(rows, this.size[0]).flatMap((i) => tilesIn(columns, this.size[1]).map((j) => [i, j] as const))
    const names = new Set(wanted.map(([i, j]) => `${i} ${j}`))
    for (const [name, tile] of this.tiles) {
      if (tile.cells || names.has(name)) continue
      tile.abort.abort()
      this.tiles.delete(name)
    }
    for (const [i, j] of wanted) this.want(i, j)
  }

  close(): void {
    for (const { abort } of this.tiles.values()) abort.abort()
  }

  *values(): Iterable<Cell> {
    for (const { cells } of this.tiles.values()) for (const row of cells ?? []) yield* row
  }

  private want(i: number, j: number): void {
    const name = `${i} ${j}`
    const known = this.tiles.get(name)
    if (known) {
      this.tiles.delete(name)
      this.tiles.set(name, known)
      return
    }
    const tile: Tile = { cells: null, abort: new AbortController() }
    this.tiles.set(name, tile)
    const [height, width] = this.size
    const rows: Window = [i * height, Math.min(this.n_rows, (i + 1) * height)]
    const columns: Window = [j * width, Math.min(this.n_columns, (j + 1) * width)]
    this.load(rows, columns, tile.abort.signal).then(
      (cells) => {
        tile.cells = cells
        this.problem.value = null
        this.version.value++
        for (const old of this.tiles.keys()) if (this.tiles.size > MAX_KEPT) this.tiles.delete(old)
      },
      (error: unknown) => {
        if (tile.abort.signal.aborted) return
        this.tiles.delete(name)
        this.problem.value = error instanceof Error ? error.message : String(error)
      },
    )
  }
}
