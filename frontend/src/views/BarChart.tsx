// One bar for each name, from zero; older frames are faint. Only visible rows exist, so there may be many names.

import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { number } from './format'
import { fading, type Series, type ViewOptions } from './series'
import { spanOf } from './space'
import { barsOf, type Bars } from './values'

const ROW = 24
const VALUE = 78
const MORE = 8

interface Layer {
  series: Series
  now: Bars
  older: Bars[]
}

/** The latest record of each stream as bars, and those before it; numbers have one bar a stream. */
export function layersOf(all: readonly Series[], { frames, history }: ViewOptions): Layer[] {
  return all.flatMap((series) => {
    const { records, label } = series
    const { y } = records.numbers
    const found: Bars[] = []
    if (y.length && !records.lines.size) for (const value of y.subarray(frames ? -1 - history : -1)) found.push({ names: [label], values: [value] })
    else {
      const n = frames ? history + 1 : 1
      for (let i = records.values.length - 1; i >= 0 && found.length < n; i--) {
        const bars = barsOf(records.values[i]!.value)
        if (bars) found.unshift(bars)
      }
    }
    const now = found.pop()
    return now ? [{ series, now, older: found }] : []
  })
}

export function BarChart({ series, options }: { series: readonly Series[]; options: ViewOptions; version: number }) {
  const box = useRef<HTMLDivElement>(null)
  const [room, setRoom] = useState({ top: 0, height: 300 })
  const look = () => setRoom({ top: box.current!.scrollTop, height: box.current!.clientHeight })
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(look)
    sizes.observe(box.current!)
    return () => sizes.disconnect()
  }, [])
  const layers = layersOf(series, options)
  const names = [...new Set(layers.flatMap(({ now }) => now.names))]
  const indexed = layers.map(({ series: one, now, older }) => ({ one, now: byName(now), older: older.map(byName) }))
  const [low, high] = spanOf([[0], ...layers.flatMap(({ now, older }) => [now.values, ...older.map(({ values }) => values)])])
  const place = (value: number) => (100 * (Math.min(high, Math.max(low, value)) - low)) / (high - low)
  const height = ROW * Math.max(1, 0.5 + layers.length / 2)
  const from = Math.max(0, Math.floor(room.top / height) - MORE)
  const end = Math.min(names.length, Math.ceil((room.top + room.height) / height) + MORE)
  return (
    <div class="drawn">
      <div class="bars" role="list" tabIndex={0} aria-label={`Bars of ${names.length} names`} ref={box} onScroll={look}>
        <div style={{ height: names.length * height, position: 'relative' }}>
          {names.slice(from, end).map((name, i) => (
            <div key={name} class="bar-row" role="listitem" style={{ height, transform: `translateY(${(from + i) * height}px)`, gridTemplateColumns: `minmax(40px, 26%) 1fr ${VALUE * layers.length}px` }}>
              <span class="bar-name" title={name}>
                {name}
              </span>
              <span class="bar-tracks">
                {indexed.map(({ one, now, older }) => (
                  <span key={one.id} class="bar-track">
                    {older.map((old, k) => (
                      <Bar key={k} value={old.get(name)} place={place} color={one.style.color} alpha={0.7 * fading(older.length - k, older.length + 1)} />
                    ))}
                    <Bar value={now.get(name)} place={place} color={one.style.color} alpha={1} front={older.length > 0} />
                    <i class="bar-zero" style={{ left: `${place(0)}%` }} />
                  </span>
                ))}
              </span>
              <span class="bar-value">{indexed.map(({ now }) => number(now.get(name) ?? NaN, 4)).join(' · ')}</span>
            </div>
          ))}
        </div>
      </div>
    </div>
  )
}

const byName = ({ names, values }: Bars): Map<string, number> => new Map(names.map((name, i) => [name, values[i]!]))

interface BarProps {
  value: number | undefined
  place: (value: number) => number
  color: string
  alpha: number
  /** In front of older ones: only its end is full, so that they are seen. */
  front?: boolean
}

function Bar({ value, place, color, alpha, front = false }: BarProps) {
  if (value === undefined) return null
  if (Number.isNaN(value)) return <span class="bar-odd">NaN</span>
  const [a, b] = [place(0), place(value)]
  return <span class={`bar ${front ? 'bar-front' : ''} ${b < a ? 'bar-below' : ''}`} style={{ left: `${Math.min(a, b)}%`, width: `${Math.abs(b - a)}%`, background: color, color, opacity: alpha }} />
}
