// The values at the cursor, largest first.

import { nearest } from './bounds'
import type { Line } from './draw'
import { dateTime, duration, number } from './format'
import { Swatch } from './Swatch'

const MAX_ROWS = 12

interface LegendProps {
  tip: { x: number; left: number; top: number }
  lines: readonly Line[]
  kind: 'step' | 'relative' | 'wall'
}

export interface Reading {
  line: Line
  y: number
  raw: number | null
  /** The ends of the band, where there is one. */
  spread: [number, number] | null
}

/** What each line says at x, largest first; what is no number stands last. */
export function readings(lines: readonly Line[], x: number): Reading[] {
  const found = lines.flatMap((line) => {
    const i = nearest(line.x, x)
    if (i < 0) return []
    const spread = line.low && line.high && line.low[i] !== line.high[i] ? ([line.low[i]!, line.high[i]!] as [number, number]) : null
    return [{ line, y: line.y[i]!, raw: line.raw ? line.raw[i]! : null, spread }]
  })
  return found.sort((a, b) => (Number.isNaN(a.y) ? 1 : Number.isNaN(b.y) ? -1 : b.y - a.y))
}

export function xText(kind: LegendProps['kind'], x: number): string {
  if (kind === 'wall') return dateTime(x)
  return kind === 'relative' ? duration(x) : `step ${number(Math.round(x), 12)}`
}

export function Legend({ tip, lines, kind }: LegendProps) {
  const rows = readings(lines, tip.x)
  const first = lines.length === 1 && lines[0]!.x.length ? lines[0]!.x[nearest(lines[0]!.x, tip.x)]! : tip.x
  const right = tip.left > 170
  const style = right ? { right: `calc(100% - ${tip.left - 12}px)` } : { left: `${tip.left + 14}px` }
  return (
    <div class="legend" style={style} aria-live="polite">
      <div class="legend-x">{xText(kind, first)}</div>
      {rows.slice(0, MAX_ROWS).map(({ line, y, raw, spread }) => (
        <div class="legend-row" key={line.id}>
          <Swatch style={line.style} />
          <span class="legend-name">{line.label}</span>
          <span class="legend-value">{number(y, 5)}</span>
          {raw !== null && <span class="legend-raw">{number(raw, 4)}</span>}
          {spread && <span class="legend-raw">{`${number(spread[0], 3)} … ${number(spread[1], 3)}`}</span>}
        </div>
      ))}
      {rows.length > MAX_ROWS && <div class="legend-more">and {rows.length - MAX_ROWS} more</div>}
    </div>
  )
}
