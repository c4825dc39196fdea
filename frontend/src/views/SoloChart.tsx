// A chart that zooms by itself, and the names of its lines.

import { signal, type Signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { Chart, type Cursor } from './Chart'
import type { Line } from './draw'
import type { Model } from './plot'
import type { Span } from './span'
import { Swatch } from './Swatch'

type Zoom = [xs: Span | null, ys: Span | null]

const EVERYTHING: Zoom = [null, null]

interface SoloChartProps {
  id: string
  title: string
  lines: Line[]
  /** The name of x, if it is not the step. */
  xname?: string
  ylog?: boolean
  dark: boolean
  /** What is in sight at first; by default everything. */
  home?: Zoom
  /** Shared by the charts whose cursors move together. */
  cursor?: Signal<Cursor | null>
  onModel?: (model: Model | null) => void
}

export function SoloChart({ id, title, lines, xname, ylog = false, dark, home = EVERYTHING, cursor, onModel }: SoloChartProps) {
  const [[xs, ys], setZoom] = useState(home)
  const own = useMemo(() => signal<Cursor | null>(null), [])
  return (
    <Chart
      id={id}
      title={title}
      lines={lines}
      kind="step"
      {...(xname && { xname })}
      xlog={false}
      ylog={ylog}
      clip={false}
      zoom={xs}
      yzoom={ys}
      dark={dark}
      cursor={cursor ?? own}
      onZoom={(nextX, nextY) => setZoom([nextX ?? xs, nextY ?? ys])}
      onReset={() => setZoom(home)}
      {...(onModel && { onModel })}
    />
  )
}

/** Which line is which, with a remark on each. */
export function LineNames<T extends Line>({ label, lines, remark }: { label: string; lines: readonly T[]; remark?: (line: T) => ComponentChildren }) {
  return (
    <ul class="panel-names" aria-label={label}>
      {lines.map((line) => (
        <li key={line.id}>
          <Swatch style={line.style} />
          {line.label}
          {remark?.(line)}
        </li>
      ))}
    </ul>
  )
}
