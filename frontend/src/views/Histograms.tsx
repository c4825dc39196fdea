// Histograms over steps: read by pointer or keys, zoomed by dragging, and opened at a step.

import { useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { dateTime, number } from './format'
import { drawHistograms, type HistogramInk } from './histogramDraw'
import { layoutOf, pointedAt, type HistogramOptions, type Layout, type Pointed } from './histogramLayout'
import { binFacts, totalAt, valueAt, type HistogramSeries } from './histograms'
import { Root } from './root'
import type { Span } from './span'

interface HistogramsProps {
  series: HistogramSeries
  options: HistogramOptions
  label: string
  dark: boolean
  /** The step that is chosen elsewhere. */
  step: number | null
  onZoom: (values: Span | null, steps: Span | null) => void
  onReset: () => void
  onOpen?: (step: number) => void
}

interface Drag {
  from: [number, number]
  to: [number, number]
}

const MIN_DRAG = 6
const DOUBLE_MS = 220
const NAMES = ['5 %', '25 %', '50 %', '75 %', '95 %']

export function Histograms({ series, options, label, dark, step, onZoom, onReset, onOpen }: HistogramsProps) {
  const box = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [size, setSize] = useState<[number, number]>([0, 0])
  const [pointed, setPointed] = useState<Pointed | null>(null)
  const [drag, setDrag] = useState<Drag | null>(null)
  const click = useRef(0)
  const root = useContext(Root) ?? document.documentElement
  const layout = useMemo(() => layoutOf(series, options, ...size), [series, ...Object.values(options).map(String), size])
  const chosen = step === null ? -1 : series.steps.indexOf(step)
  const at = pointed && pointed.i < series.steps.length && pointed.bin < series.edges.length - 1 ? pointed : null

  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setSize([entry!.contentRect.width, entry!.contentRect.height]))
    sizes.observe(box.current!)
    return () => sizes.disconnect()
  }, [])

  useEffect(() => {
    const [width, height] = size
    if (!width || !height) return
    const ratio = devicePixelRatio || 1
    const element = canvas.current!
    Object.assign(element, { width: Math.round(width * ratio), height: Math.round(height * ratio) })
    const ctx = element.getContext('2d')!
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    drawHistograms(ctx, series, options, layout, inkOf(root, dark), at, chosen)
  }, [layout, at?.i, at?.bin, chosen, dark])

  const spot = (event: MouseEvent): [number, number] => {
    const { left, top } = box.current!.getBoundingClientRect()
    return [event.clientX - left, event.clientY - top]
  }
  const finish = (event: PointerEvent) => {
    const made = drag && { ...drag, to: spot(event) }
    setDrag(null)
    if (!made) return
    const zoom = zoomOf(series, layout, made)
    if (zoom) onZoom(...zoom)
    else {
      const found = pointedAt(series, layout, ...made.to)
      clearTimeout(click.current)
      // A second click means something else.
      if (found && onOpen) click.current = window.setTimeout(() => onOpen(series.steps[found.i]!), DOUBLE_MS)
    }
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const by = event.shiftKey ? 10 : 1
    const across = options.kind === 'offset' || options.kind === 'overlay'
    const move = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[event.key]
    if (move && layout.drawn.length) {
      const [bins, steps] = across ? move : ([-move[1], move[0]] as const)
      const now = at ?? { i: layout.drawn.at(-1)!, bin: Math.floor((layout.bins[0] + layout.bins[1]) / 2) }
      const within = (value: number, low: number, high: number) => Math.max(low, Math.min(high, value))
      setPointed({ i: within(now.i + by * steps, layout.range[0], layout.range[1] - 1), bin: within(now.bin + by * bins, Math.floor(layout.bins[0]), Math.ceil(layout.bins[1]) - 1) })
    } else if (event.key === 'Enter' && at) onOpen?.(series.steps[at.i]!)
    else if (event.key === '0') onReset()
    else if (event.key === 'Escape' && at) setPointed(null)
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  const n = layout.range[1] - layout.range[0]
  return (
    <div
      ref={box}
      class="histograms"
      tabIndex={0}
      role="img"
      aria-label={`${label}: ${n} histograms${n ? ` from step ${series.steps[layout.range[0]]} to ${series.steps[layout.range[1] - 1]}` : ''}. Arrow keys read them, Enter opens a step.`}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        if (event.button !== 0) return
        if (event.pointerType === 'mouse') box.current!.setPointerCapture(event.pointerId)
        setDrag({ from: spot(event), to: spot(event) })
      }}
      onPointerMove={(event) => {
        setPointed(pointedAt(series, layout, ...spot(event)))
        if (drag) setDrag({ ...drag, to: spot(event) })
      }}
      onPointerUp={finish}
      onPointerCancel={() => setDrag(null)}
      onPointerLeave={() => drag || setPointed(null)}
      onBlur={() => setPointed(null)}
      onDblClick={() => (clearTimeout(click.current), onReset())}
    >
      <canvas ref={canvas} class="histograms-canvas" aria-hidden="true" />
      {layout.drawn.length < n && <p class="histograms-note">{`${layout.drawn.length.toLocaleString('en')} of ${n.toLocaleString('en')} steps drawn`}</p>}
      {n === 0 && <p class="chart-empty">No step lies in this range</p>}
      {drag && zoomOf(series, layout, drag) && <span class="histograms-drag" style={boxStyle(layout.box, drag, options.kind)} />}
      {at && !drag && <Tip series={series} at={at} kind={options.kind} right={layout.box.left + layout.box.width} x={tipX(layout, at, options.kind)} />}
    </div>
  )
}

const tipX = (layout: Layout, at: Pointed, kind: HistogramOptions['kind']): number =>
  kind === 'offset' || kind === 'overlay' ? layout.value(at.bin + 0.5) : layout.step(at.i)

function Tip({ series, at, kind, x, right }: { series: HistogramSeries; at: Pointed; kind: HistogramOptions['kind']; x: number; right: number }) {
  const { i, bin } = at
  const side = x > right / 2 ? { right: `calc(100% - ${x - 14}px)` } : { left: `${x + 14}px` }
  return (
    <div class="legend histograms-tip" style={side} role="status">
      <div class="legend-x">
        step {number(series.steps[i]!, 12)} · {dateTime(series.walls[i]!)}
      </div>
      {kind === 'bands' ? (
        <>
          {series.percentiles[i]!.map((value, k) => (
            <div class="legend-row" key={k}>
              <span class="legend-name">{NAMES[k]}</span>
              <span class="legend-value">{number(value)}</span>
            </div>
          ))}
          <div class="legend-row">
            <span class="legend-name">values</span>
            <span class="legend-value">{totalAt(series, i).toLocaleString('en')}</span>
          </div>
        </>
      ) : (
        binFacts(series, i, bin).map((line, k) => (
          <div key={line} class={k === 0 ? 'legend-value' : undefined}>
            {line}
          </div>
        ))
      )}
    </div>
  )
}

/** The range of values and of steps that a drag selects; null for a click. */
function zoomOf(series: HistogramSeries, layout: Layout, { from, to }: Drag): [Span | null, Span | null] | null {
  const [wide, high] = [Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1])]
  if (wide < MIN_DRAG && (high < MIN_DRAG || layout.kind === 'overlay')) return null
  const { box, bins, kind, range } = layout
  const share = (a: number, b: number, start: number, length: number): Span => [Math.max(0, (Math.min(a, b) - start) / length), Math.min(1, (Math.max(a, b) - start) / length)]
  const x = wide < MIN_DRAG ? null : share(from[0], to[0], box.left, box.width)
  const y = high < 3 * MIN_DRAG && wide >= MIN_DRAG ? null : share(from[1], to[1], box.top, box.height)
  const valueSpan = ([a, b]: Span): Span => [valueAt(series.edges, bins[0] + a * (bins[1] - bins[0])), valueAt(series.edges, bins[0] + b * (bins[1] - bins[0]))]
  const stepSpan = (low: number, top: number): Span | null => {
    const inside = series.steps.slice(...range).filter((_, k) => layout.step(k + range[0]) >= low && layout.step(k + range[0]) <= top)
    return inside.length > 1 ? [inside[0]!, inside.at(-1)!] : null
  }
  if (kind === 'overlay') return x && [valueSpan(x), null]
  if (kind === 'offset') return [x && valueSpan(x), y && stepSpan(Math.min(from[1], to[1]), Math.max(from[1], to[1]))]
  return [y && valueSpan([1 - y[1], 1 - y[0]]), x && stepSpan(Math.min(from[0], to[0]), Math.max(from[0], to[0]))]
}

function boxStyle(box: { left: number; top: number; width: number; height: number }, { from, to }: Drag, kind: string) {
  const [wide, high] = [Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1])]
  const whole = kind === 'overlay' || (high < 3 * MIN_DRAG && wide >= MIN_DRAG)
  const narrow = wide < MIN_DRAG
  return {
    left: `${narrow ? box.left : Math.min(from[0], to[0])}px`,
    width: `${narrow ? box.width : wide}px`,
    top: `${whole ? box.top : Math.min(from[1], to[1])}px`,
    height: `${whole ? box.height : high}px`,
  }
}

function inkOf(root: Element, dark: boolean): HistogramInk {
  const style = getComputedStyle(root)
  const of = (name: string) => style.getPropertyValue(name).trim()
  return { ground: of('--surface'), text: of('--text'), muted: of('--muted'), grid: of('--grid'), accent: of('--accent'), font: of('--font'), dark }
}
