// Streams as lines over the steps or the time, with what is zoomed kept here.

import { signal, type Signal } from '@preact/signals'
import { useMemo, useState } from 'preact/hooks'
import { Chart, type Cursor } from './Chart'
import type { Line } from './draw'
import type { Model } from './plot'
import { linesOf, type Series, type ViewOptions } from './series'
import type { Span } from './span'

interface LinesProps {
  id: string
  title: string
  series: readonly Series[]
  options: ViewOptions
  version: number
  dark: boolean
  cursor?: Signal<Cursor | null>
  onModel?: (model: Model | null) => void
}

export function Lines({ id, title, series, options, version, dark, cursor, onModel }: LinesProps) {
  const [{ xs, ys }, setZoom] = useState<{ xs: Span | null; ys: Span | null }>({ xs: null, ys: null })
  const own = useMemo(() => signal<Cursor | null>(null), [])
  const lines: Line[] = useMemo(() => linesOf(series, options, xs), [version, series, options, xs])
  const n_left_out = series.reduce((sum, { records }) => sum + records.n_names_left_out, 0)
  return (
    <>
      <Chart
        id={id}
        title={title}
        lines={lines}
        kind={options.frames ? 'number' : options.x}
        xlog={options.xlog}
        ylog={options.ylog}
        clip={false}
        zoom={xs}
        yzoom={ys}
        dark={dark}
        cursor={cursor ?? own}
        onZoom={(nextX, nextY) => setZoom({ xs: nextX ?? xs, ys: nextY ?? ys })}
        onReset={() => setZoom({ xs: null, ys: null })}
        onModel={onModel}
      />
      {n_left_out > 0 && <p class="names">The first {lines.length} names are drawn, {n_left_out.toLocaleString('en')} are not: ask for those that you need, or see them as bars.</p>}
    </>
  )
}
