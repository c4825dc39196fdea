// A matrix as a picture: one cell a value, on a scale that is the same on both sides of zero where both occur.

import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { number } from './format'
import { DIVERGING, mapped, SEQUENTIAL, type Rgb } from './palette'
import type { Matrix } from './values'

interface Shades {
  low: number
  high: number
  colors: Rgb[]
}

const N_SHADES = 256

function shadesOf({ data }: Matrix): Shades {
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
  const stops = diverging ? DIVERGING : SEQUENTIAL
  return { low, high, colors: Array.from({ length: N_SHADES }, (_, i) => mapped(stops, i / (N_SHADES - 1))) }
}

export function Heat({ matrix }: { matrix: Matrix }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const [tip, setTip] = useState('')
  const { rows, columns, data } = matrix
  const { low, high, colors } = shadesOf(matrix)

  useLayoutEffect(() => {
    const ctx = canvas.current!.getContext('2d')!
    const picture = ctx.createImageData(columns, rows)
    for (let i = 0; i < data.length; i++) {
      const value = data[i]!
      const share = value === Infinity ? 1 : value === -Infinity ? 0 : (value - low) / (high - low || 1)
      const [r, g, b] = Number.isNaN(value) ? mapped(SEQUENTIAL, NaN) : colors[Math.round(share * (N_SHADES - 1))]!
      picture.data.set([r, g, b, 255], 4 * i)
    }
    ctx.putImageData(picture, 0, 0)
  }, [matrix])

  const point = ({ clientX, clientY }: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect()
    const column = Math.floor(((clientX - box.left) / box.width) * columns)
    const row = Math.floor(((clientY - box.top) / box.height) * rows)
    if (row >= 0 && row < rows && column >= 0 && column < columns) setTip(`[${row}, ${column}]  ${number(data[row * columns + column]!, 6)}`)
  }
  const ramp = colors.filter((_, i) => i % 16 === 0).map((c) => `rgb(${c.join(' ')})`)
  return (
    <div class="heat">
      <canvas ref={canvas} width={columns} height={rows} role="img" aria-label={`Heat map of ${rows} by ${columns} values from ${number(low)} to ${number(high)}`} onMouseMove={point} onMouseLeave={() => setTip('')} />
      <div class="heat-scale">
        <span>{number(low, 3)}</span>
        <span class="heat-ramp" style={{ background: `linear-gradient(to right, ${ramp.join(', ')})` }} />
        <span>{number(high, 3)}</span>
        <span class="heat-tip">{tip || `${rows} × ${columns}`}</span>
      </div>
    </div>
  )
}
