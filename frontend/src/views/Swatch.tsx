import type { LineStyle } from './palette'

/** A piece of the line, with its dash: what a legend shows beside a name. */
export function Swatch({ style }: { style: LineStyle }) {
  return (
    <svg class="swatch" width="16" height="8" aria-hidden="true">
      <line x1="0" x2="16" y1="4" y2="4" stroke={style.color} stroke-width="2.5" stroke-dasharray={style.dash.join(' ')} />
    </svg>
  )
}
