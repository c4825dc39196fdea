// A table on a canvas: the visible cells, their colours, the selection, and the frozen headers.

import { cellText, inSight, MAX_TEXT, shadeOf, sizeOf, type Cell, type Format } from './cells'
import type { Axis } from './slices'

export type Range = [from: number, end: number]
export type Spot = [row: number, column: number]

/** How high a row and the column headers are, and how far text stays from its edge. */
export const [HEIGHT, HEAD, PAD] = [24, 26, 9]

export interface Painted {
  rows: Axis
  /** Null for a vector: it has one column. */
  columns: Axis | null
  /** The cells that are there; a new function whenever there are more. */
  cell: (row: number, column: number) => Cell | undefined
  dtype: string
  format: Format
  /** The magnitude with the strongest colour; null colours nothing. */
  bound: number | null
  dark: boolean
  marked: Spot | null
}

/** The sizes of a table in CSS pixels: a column, the row headers, the area of cells. */
export interface Geometry {
  width: number
  side: number
  body: [number, number]
  n_columns: number
}

export function paint(canvas: HTMLCanvasElement, box: HTMLElement, props: Painted, { width, side, body, n_columns }: Geometry, [ox, oy]: [number, number], chosen: { rows: Range; columns: Range } | null): void {
  const ratio = devicePixelRatio || 1
  const [w, h] = [side + body[0], HEAD + body[1]]
  const [deviceW, deviceH] = [Math.round(w * ratio), Math.round(h * ratio)]
  if (canvas.width !== deviceW || canvas.height !== deviceH) Object.assign(canvas, { width: deviceW, height: deviceH })
  const ctx = canvas.getContext('2d', { alpha: false })!
  const style = getComputedStyle(box)
  const ink = (name: string) => style.getPropertyValue(name).trim()
  const { rows, columns, cell, dtype, format, bound, dark, marked } = props
  const isText = dtype === 'str'
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
  ctx.fillStyle = ink('--surface')
  ctx.fillRect(0, 0, w, h)
  ctx.font = `12px ${ink('--mono')}`
  ctx.textBaseline = 'middle'
  ctx.textAlign = 'right'
  const [plain, faint, line] = [ink('--text'), ink('--line-strong'), ink('--grid')]
  const [r0, r1] = inSight(oy, body[1], HEIGHT, rows.n)
  const [c0, c1] = inSight(ox, body[0], width, n_columns)
  const x = (column: number) => side + column * width - ox
  const y = (row: number) => HEAD + row * HEIGHT - oy

  ctx.save()
  ctx.beginPath()
  ctx.rect(side, HEAD, body[0], body[1])
  ctx.clip()
  for (let row = r0; row < r1; row++) {
    for (let column = c0; column < c1; column++) {
      const value = cell(row, column)
      const [left, top] = [x(column), y(row)]
      if (value === undefined) {
        ctx.fillStyle = faint
        ctx.fillText('·', left + width - PAD, top + HEIGHT / 2)
        continue
      }
      ctx.fillStyle = plain
      if (isText) {
        const text = cellText(value, format, dtype)
        ctx.textAlign = 'left'
        ctx.fillText(text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text, left + PAD, top + HEIGHT / 2 + 0.5)
        ctx.textAlign = 'right'
        continue
      }
      const size = sizeOf(value)
      if (bound !== null || !Number.isFinite(size)) {
        const shade = shadeOf(size, bound ?? 1, dark)
        ctx.fillStyle = shade.ground
        ctx.fillRect(left, top, width, HEIGHT)
        ctx.fillStyle = shade.text
      }
      ctx.fillText(cellText(value, format), left + width - PAD, top + HEIGHT / 2 + 0.5)
    }
  }
  ctx.fillStyle = line
  ctx.globalAlpha = bound === null ? 1 : 0.5
  for (let row = r0; row <= r1; row++) ctx.fillRect(side, Math.round(y(row)) - 1, Math.min(body[0], n_columns * width), 1)
  for (let column = c0; column <= c1; column++) ctx.fillRect(Math.round(x(column)) - 1, HEAD, 1, Math.min(body[1], rows.n * HEIGHT))
  ctx.globalAlpha = 1
  const accent = ink('--accent')
  if (chosen && (chosen.rows[1] - chosen.rows[0] > 1 || chosen.columns[1] - chosen.columns[0] > 1)) {
    const area = [x(chosen.columns[0]), y(chosen.rows[0]), (chosen.columns[1] - chosen.columns[0]) * width, (chosen.rows[1] - chosen.rows[0]) * HEIGHT] as const
    ctx.globalAlpha = 0.18
    ctx.fillStyle = accent
    ctx.fillRect(...area)
    ctx.globalAlpha = 1
    ctx.strokeStyle = accent
    ctx.strokeRect(area[0] + 0.5, area[1] + 0.5, area[2] - 1, area[3] - 1)
  }
  if (marked) {
    ctx.strokeStyle = ink('--surface')
    ctx.lineWidth = 4
    ctx.strokeRect(x(marked[1]) + 1, y(marked[0]) + 1, width - 2, HEIGHT - 2)
    ctx.strokeStyle = accent
    ctx.lineWidth = 2
    ctx.strokeRect(x(marked[1]) + 1, y(marked[0]) + 1, width - 2, HEIGHT - 2)
    ctx.lineWidth = 1
  }
  ctx.restore()

  const muted = ink('--muted')
  const head = (left: number, top: number, wide: number, high: number, labels: () => void) => {
    ctx.save()
    ctx.beginPath()
    ctx.rect(left, top, wide, high)
    ctx.clip()
    ctx.fillStyle = ink('--sunken')
    ctx.fillRect(left, top, wide, high)
    labels()
    ctx.restore()
  }
  head(side, 0, body[0], HEAD, () => {
    for (let column = c0; column < c1; column++) {
      ctx.fillStyle = column === marked?.[1] ? accent : muted
      ctx.fillText(columns ? String(columns.start + columns.step * column) : 'value', x(column) + width - PAD, HEAD / 2 + 0.5)
    }
  })
  head(0, HEAD, side, body[1], () => {
    for (let row = r0; row < r1; row++) {
      ctx.fillStyle = row === marked?.[0] ? accent : muted
      ctx.fillText(String(rows.start + rows.step * row), side - PAD, y(row) + HEIGHT / 2 + 0.5)
    }
  })
  ctx.fillStyle = ink('--sunken')
  ctx.fillRect(0, 0, side, HEAD)
  ctx.fillStyle = ink('--line')
  ctx.fillRect(0, HEAD - 1, w, 1)
  ctx.fillRect(side - 1, 0, 1, h)
}
