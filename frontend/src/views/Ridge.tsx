// Histograms over steps as a ridge: the newest in front and in full colour, older ones behind, at their true steps.

import { number } from './format'
import { mapped, SEQUENTIAL } from './palette'
import type { Counts } from './values'

export interface Frame {
  step: number
  counts: Counts
}

const [WIDTH, HEIGHT, LEFT, BOTTOM, RIDGE] = [600, 300, 8, 24, 90]
const MAX_FRAMES = 30

export function Ridge({ frames }: { frames: Frame[] }) {
  const every = Math.max(1, Math.ceil(frames.length / MAX_FRAMES))
  const shown = frames.filter((_, i) => (frames.length - 1 - i) % every === 0)
  const first = shown[0]!.step
  const last = shown[shown.length - 1]!.step
  let [low, high, top] = [Infinity, -Infinity, 0]
  for (const { counts } of shown) {
    low = Math.min(low, counts.edges[0]!)
    high = Math.max(high, counts.edges[counts.edges.length - 1]!)
    top = Math.max(top, ...densities(counts))
  }
  const x = (v: number) => LEFT + ((v - low) / (high - low || 1)) * (WIDTH - 60 - LEFT)
  const base = (step: number) => RIDGE + (last === first ? 1 : (step - first) / (last - first)) * (HEIGHT - BOTTOM - RIDGE)
  const path = ({ step, counts }: Frame) => {
    const y = densities(counts).map((d) => base(step) - (d / (top || 1)) * (RIDGE - 6))
    const steps = y.map((v, i) => `L${x(counts.edges[i]!)} ${v}L${x(counts.edges[i + 1]!)} ${v}`).join('')
    return `M${x(counts.edges[0]!)} ${base(step)}${steps}L${x(counts.edges[counts.edges.length - 1]!)} ${base(step)}Z`
  }
  const color = (i: number) => `rgb(${mapped(SEQUENTIAL, 0.25 + (0.55 * (i + 1)) / shown.length).join(' ')})`
  return (
    <svg class="ridge" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${shown.length} histograms from step ${first} to ${last}`}>
      {shown.map((frame, i) => (
        <path key={frame.step} d={path(frame)} fill={color(i)} fill-opacity="0.82" stroke="var(--surface)" stroke-width="1">
          <title>{`step ${number(frame.step)}: ${frame.counts.counts.reduce((a, b) => a + b, 0).toLocaleString('en')} values`}</title>
        </path>
      ))}
      {[low, (low + high) / 2, high].map((v, i) => (
        <text key={i} x={x(v)} y={HEIGHT - 6} text-anchor={(['start', 'middle', 'end'] as const)[i]}>
          {number(v, 3)}
        </text>
      ))}
      {(first === last ? [last] : [first, last]).map((step) => (
        <text key={step} x={WIDTH - 52} y={base(step)}>
          {number(step)}
        </text>
      ))}
    </svg>
  )
}

/** Counts by the width of their bins, so that uneven bins do not mislead. */
function densities({ edges, counts }: Counts): number[] {
  return counts.map((n, i) => n / (edges[i + 1]! - edges[i]! || 1))
}
