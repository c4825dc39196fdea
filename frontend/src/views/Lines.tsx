// Streams as lines over steps or time; the zoom is stored here.

import { signal, type Signal } from '@preact/signals'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Chart, type Cursor } from './Chart'
import { extentOf } from './bounds'
import type { Line, Mark } from './draw'
import { moved } from './moves'
import type { Model } from './plot'
import { linesOf, placesOf, restartsOf, type Series, type ViewOptions } from './series'
import type { Span } from './span'

interface LinesProps {
  id: string
  title: string
  series: readonly Series[]
  options: ViewOptions
  version: number
  dark: boolean
  cursor?: Signal<Cursor | null>
  /** Besides those where runs began again. */
  marks?: readonly Mark[]
  /** Another number whenever everything is to be shown again. */
  home?: number
  onModel?: (model: Model | null) => void
}

const NONE: readonly Mark[] = []

export function Lines({ id, title, series, options, version, dark, cursor, marks: given = NONE, home, onModel }: LinesProps) {
  const [{ xs, ys }, setZoom] = useState<{ xs: Span | null; ys: Span | null }>({ xs: null, ys: null })
  const own = useMemo(() => signal<Cursor | null>(null), [])
  const seen = xs ?? options.xlimits
  const lines: Line[] = useMemo(() => linesOf(series, options, seen), [version, series, options, String(seen)])
  const restarts = JSON.stringify(restartsOf(series, options))
  const marks = useMemo(() => [...given, ...(JSON.parse(restarts) as Mark[])], [given, restarts])
  const names = options.frames ? JSON.stringify(placesOf(series, options) ?? null) : 'null'
  const places = useMemo(() => (JSON.parse(names) as string[] | null) ?? undefined, [names])
  const model = useRef<Model | null>(null)
  const showAll = () => setZoom((now) => (now.xs || now.ys ? { xs: null, ys: null } : now))
  const whole = useMemo(() => once(() => wholeOf(series, options)), [version, series, options])
  useEffect(showAll, [home])
  const tell = (now: Model | null) => {
    model.current = now
    onModel?.(now)
  }
  const move = (by: number, factor: number, around: number) => {
    if (!model.current) return
    const { xs: now, xlog } = model.current
    const next = moved(now, whole(), xlog, by, factor, around)
    if (String(next) !== String(now)) setZoom({ xs: next, ys })
  }
  const n_left_out = series.reduce((sum, { records }) => sum + records.n_names_left_out, 0)
  return (
    <>
      <Chart
        id={id}
        title={title}
        lines={lines}
        marks={marks}
        kind={options.frames || options.xname ? 'number' : options.x}
        xlog={options.xlog && options.x !== 'wall'}
        ylog={options.ylog}
        clip={options.clip}
        zoom={seen}
        yzoom={ys ?? options.ylimits}
        xname={options.frames ? '' : options.xname}
        places={places}
        dark={dark}
        cursor={cursor ?? own}
        onZoom={(nextX, nextY) => setZoom({ xs: nextX ?? xs, ys: nextY ?? ys })}
        onReset={showAll}
        onMove={move}
        onModel={tell}
      />
      {n_left_out > 0 && <p class="names">The first {lines.length} names are drawn, {n_left_out.toLocaleString('en')} are not: ask for those that you need, or see them as bars.</p>}
    </>
  )
}

/** All of x that there is. */
const wholeOf = (series: readonly Series[], options: ViewOptions): Span => extentOf(linesOf(series, options, null).map(({ x }) => x), options.xlog) ?? [0, 1]

function once<T>(make: () => T): () => T {
  let made: T | undefined
  return () => (made ??= make())
}
