import { describe, expect, test, vi } from 'vitest'
import { MAX_TILE, Tiles, tileSize, tilesIn, type Window } from '../src/data/tiles'

test('a tile is never more than may be asked for', () => {
  for (const n of [1, 3, 64, 1_000_000]) {
    const [rows, columns] = tileSize(n)
    expect(rows * columns).toBeLessThanOrEqual(MAX_TILE)
    expect(columns).toBeLessThanOrEqual(n)
  }
})

test('what is nearest to the middle comes first', () => {
  expect(tilesIn([100, 500], 100)).toEqual([2, 3, 1, 4])
  expect(tilesIn([0, 0], 100)).toEqual([])
})

describe('tiles', () => {
  const value = (row: number, column: number) => row * 1_000 + column
  const load = vi.fn(async ([r0, r1]: Window, [c0, c1]: Window) => Array.from({ length: r1 - r0 }, (_, i) => Array.from({ length: c1 - c0 }, (_, j) => value(r0 + i, c0 + j))))

  test('bring the cells in sight, each once, the last ones cut short', async () => {
    load.mockClear()
    const tiles = new Tiles(300, 100, load)
    tiles.see([120, 140], [60, 70])
    tiles.see([120, 141], [60, 70])
    await vi.waitFor(() => expect(tiles.version.value).toBe(4))
    expect(load).toHaveBeenCalledTimes(4)
    for (const [row, column] of [[120, 60], [139, 69], [127, 63], [128, 64], [128, 99]] as const) expect(tiles.cell(row, column)).toBe(value(row, column))
    expect(tiles.cell(299, 99)).toBeUndefined()
    expect(load.mock.calls.map(([, columns]) => columns)).toContainEqual([64, 100])
  })

  test('let go what is out of sight before it came', () => {
    const aborts: AbortSignal[] = []
    const tiles = new Tiles(10_000, 10, (_, __, abort) => (aborts.push(abort), new Promise(() => undefined)))
    tiles.see([0, 10], [0, 10])
    tiles.see([8_200, 8_210], [0, 10])
    expect(aborts.map(({ aborted }) => aborted)).toEqual([true, false])
  })

  test('tell what went wrong, and try again when seen again', async () => {
    let fails = true
    const tiles = new Tiles(10, 10, async () => (fails ? Promise.reject(new Error('no such step')) : [[7]]))
    tiles.see([0, 10], [0, 10])
    await vi.waitFor(() => expect(tiles.problem.value).toBe('no such step'))
    fails = false
    tiles.see([0, 10], [0, 10])
    await vi.waitFor(() => expect(tiles.cell(0, 0)).toBe(7))
    expect(tiles.problem.value).toBeNull()
  })
})
