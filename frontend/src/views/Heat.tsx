// A matrix as a picture: one pixel a value, on a scale that is the same on both sides of zero where both occur.

import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ColorKey } from './ColorKey'
import { number } from './format'
import { DIVERGING, DIVERGING_LIGHT, mapped, SEQUENTIAL, type Rgb } from './palette'
import type { Matrix } from './values'

interface Shades {
  low: number
  high: number
  colors: Rgb[]
}

const N_SHADES = 256

function shadesOf({ data }: Matrix, bound = Infinity, dark = false): Shades {
  let [low, high] = [Infinity, -Infinity]
  for (let i = 0; i < data.length; i++) {
    const value = data[i]!
    if (!Number.isFinite(value)) continue
    low = Math.min(low, value)
    high = Math.max(high, value)
  }
  if (low > high) [low, high] = [0, 1]
  const diverging = low < 0 && high > 0
  if (diverging) high = Math.max(-low, high)
  if (diverging) low = -high
  if (high > bound) high = bound
  if (low < -bound) low = -bound
  const stops = !diverging ? SEQUENTIAL : dark ? DIVERGING : DIVERGING_LIGHT
  return { low, high, colors: Array.from({ length: N_SHADES }, (_, i) => mapped(stops, i / (N_SHADES - 1))) }
}

export type Block = { rows: [from: number, end: number]; columns: [from: number, end: number] }

/** The rows and columns of the whole that a pixel of a thinned matrix stands for. */
export function blockOf(row: number, column: number, matrix: Matrix, whole: readonly [rows: number, columns: number]): Block {
  const part = (i: number, n: number, length: number): [number, number] => [Math.floor((i * length) / n), Math.floor(((i + 1) * length) / n)]
  return { rows: part(row, matrix.rows, whole[0]), columns: part(column, matrix.columns, whole[1]) }
}

const MAX_NUMBERS = 7

/** Some of the numbers from 0 to n − 1, round ones. */
export function numbersOf(n: number): number[] {
  const rough = n / MAX_NUMBERS
  const unit = 10 ** Math.floor(Math.log10(rough))
  const step = Math.max(1, [1, 2, 5, 10].find((m) => m * unit >= rough)! * unit)
  return Array.from({ length: Math.ceil(n / step) }, (_, i) => i * step)
}

/** Cells are square unless that would make the map a thin strip. */
const MAX_SQUARE = 5

interface HeatProps {
  matrix: Matrix
  dark: boolean
  /** The magnitude with the strongest colour; by default the largest. */
  bound?: number
  /** The rows and columns of the whole, if each pixel is the extreme of a block. */
  whole?: readonly [rows: number, columns: number]
  /** The names of a row and a column of the whole. */
  nameOf?: (row: number, column: number) => string
  onPick?: (block: Block) => void
}

export function Heat({ matrix, dark, bound, whole, nameOf = (row, column) => `[${row}, ${column}]`, onPick }: HeatProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const [spot, setSpot] = useState<[number, number] | null>(null)
  const { rows, columns, data } = matrix
  const { low, high, colors } = useMemo(() => shadesOf(matrix, bound, dark), [matrix, bound, dark])
  const size = whole ?? ([rows, columns] as const)
  const thinned = size[0] > rows || size[1] > columns
  const ratio = size[1] / size[0]
  const square = ratio < MAX_SQUARE && ratio > 1 / MAX_SQUARE

  useLayoutEffect(() => {
    if (!data.length) return
    const ctx = canvas.current!.getContext('2d')!
    const picture = ctx.createImageData(columns, rows)
    for (let i = 0; i < data.length; i++) {
      const value = data[i]!
      const share = Math.max(0, Math.min(1, (value - low) / (high - low || 1)))
      const [r, g, b] = Number.isNaN(value) ? mapped(SEQUENTIAL, NaN) : colors[Math.round(share * (N_SHADES - 1))]!
      picture.data.set([r, g, b, 255], 4 * i)
    }
    ctx.putImageData(picture, 0, 0)
  }, [matrix, bound])

  const spotAt = ({ clientX, clientY }: MouseEvent): [number, number] | null => {
    const box = canvas.current!.getBoundingClientRect()
    const column = Math.floor(((clientX - box.left) / box.width) * columns)
    const row = Math.floor(((clientY - box.top) / box.height) * rows)
    return row >= 0 && row < rows && column >= 0 && column < columns ? [row, column] : null
  }
  const pick = (at: [number, number] | null) => at && onPick?.(blockOf(...at, matrix, size))
  const onKeyDown = (event: KeyboardEvent) => {
    const by = event.shiftKey ? 10 : 1
    const move = ({ ArrowDown: [by, 0], ArrowUp: [-by, 0], ArrowRight: [0, by], ArrowLeft: [0, -by] } as Record<string, [number, number]>)[event.key]
    if (move) {
      const [row, column] = spot ?? [0, 0]
      setSpot([Math.max(0, Math.min(rows - 1, row + move[0])), Math.max(0, Math.min(columns - 1, column + move[1]))])
    } else if (event.key === 'Enter') pick(spot)
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  const block = spot && blockOf(...spot, matrix, size)
  const tip = spot && block ? `${thinned ? 'around ' : ''}${nameOf(block.rows[0], block.columns[0])}  ${number(data[spot[0] * columns + spot[1]]!, 6)}` : ''
  const ramp = colors.filter((_, i) => i % 16 === 0).map((c) => `rgb(${c.join(' ')})`)
  const dimensions = `${size[0].toLocaleString('en')} × ${size[1].toLocaleString('en')}`
  return (
    <div class="heat">
      <div class="heat-box">
        <div class={`heat-plot${square ? ' is-square' : ''}`} style={{ '--ratio': String(ratio) }}>
          <canvas
            ref={canvas}
            class={onPick ? 'is-pickable' : undefined}
            width={columns}
            height={rows}
            role="img"
            tabIndex={0}
            aria-label={`Heat map of ${dimensions} values from ${number(low)} to ${number(high)}. Arrow keys read its values.`}
            onMouseMove={(event) => setSpot(spotAt(event))}
            onMouseLeave={() => setSpot(null)}
            onBlur={() => setSpot(null)}
            onClick={(event) => pick(spotAt(event))}
            onKeyDown={onKeyDown}
          />
          {spot && <span class="heat-cross" aria-hidden="true" style={{ left: `${(100 * (spot[1] + 0.5)) / columns}%`, top: `${(100 * (spot[0] + 0.5)) / rows}%` }} />}
          {numbersOf(size[0]).map((i) => (
            <span key={i} class="heat-row" aria-hidden="true" style={{ top: `${(100 * (i + 0.5)) / size[0]}%` }}>
              {i}
            </span>
          ))}
          {numbersOf(size[1]).map((i) => (
            <span key={i} class="heat-column" aria-hidden="true" style={{ left: `${(100 * (i + 0.5)) / size[1]}%` }}>
              {i}
            </span>
          ))}
        </div>
      </div>
      <div class="heat-scale">
        <ColorKey low={low} high={high} colors={ramp} />
        <span class="heat-tip" role="status" title={thinned ? 'Each pixel is the value of its block that is farthest from zero' : undefined}>
          {tip || (thinned ? `${dimensions}, shown in ${rows} × ${columns}` : dimensions)}
        </span>
      </div>
    </div>
  )
}
