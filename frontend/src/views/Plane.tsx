// Points in x and y, as paths in the order in which they came or each by itself; texts stand at the points that have one.

import { useEffect, useRef, useState } from 'preact/hooks'
import { project, type Scale } from './draw'
import { number } from './format'
import { axesOf, type AxisNames } from './labels'
import { moved } from './moves'
import { usePainted, type Sheet } from './paint'
import { canvasPen } from './pens'
import { fading, type Series, type ViewOptions } from './series'
import { spanOf } from './space'
import type { Span } from './span'
import { ticksOf } from './ticks'

const [LEFT, RIGHT, TOP, BOTTOM] = [52, 14, 10, 24]
const REACH_PX = 24
const MIN_BOX_PX = 6

type Path = { x: Float64Array; y: Float64Array; step: Float64Array }
type Box = { from: [number, number]; to: [number, number] }

interface PlaneProps {
  series: readonly Series[]
  options: ViewOptions
  /** Whether texts are shown at the points that have one. */
  texts: boolean
  /** Whether points stand by themselves, without a line. */
  scattered: boolean
  /** Another number whenever everything is to be shown again. */
  home?: number
  version: number
  dark: boolean
}

export function Plane({ series, options, texts, scattered, version, dark, home }: PlaneProps) {
  const [zoom, setZoom] = useState<[Span, Span] | null>(null)
  const [box, setBox] = useState<Box | null>(null)
  const [at, setAt] = useState<[number, number] | null>(null)
  const scale = useRef<Scale | null>(null)
  /** The last place of the pointer while it drags. */
  const held = useRef<[number, number] | null>(null)
  useEffect(() => setZoom(null), [home])
  const n = options.frames ? options.history + 1 : options.last || Infinity
  const paths: Path[] = series.map(({ records: { points } }) => ({ x: points.x.subarray(n < points.x.length ? -n : 0), y: points.y.subarray(n < points.x.length ? -n : 0), step: points.step.subarray(n < points.x.length ? -n : 0) }))
  const canvas = usePainted(
    (sheet) => {
      scale.current = scaleOf(sheet, paths, options, zoom)
      paint(sheet, scale.current, paths, series, options, texts, scattered)
    },
    [version, dark, options, zoom, texts, scattered],
  )
  const placeOf = ({ clientX, clientY }: PointerEvent): [number, number] => {
    const { left, top } = canvas.current!.getBoundingClientRect()
    return [clientX - left, clientY - top]
  }
  /** Move the visible box by shares of its sides, and scale it by `factor` around shares of them. */
  const move = ([right, down]: [number, number], factor: number, around: [number, number] = [0.5, 0.5]) => {
    const now = scale.current
    if (!now) return
    const next = (span: Span, log: boolean, by: number, share: number) => moved(span, log ? [Number.MIN_VALUE, Number.MAX_VALUE] : [-Number.MAX_VALUE, Number.MAX_VALUE], log, by, factor, share)
    setZoom([next(now.xs, now.xlog, right, around[0]), next(now.ys, now.ylog, -down, 1 - around[1])])
  }
  const drag = (event: PointerEvent) => {
    const to = placeOf(event)
    const now = scale.current
    if (held.current && now) {
      move([(held.current[0] - to[0]) / now.width, (held.current[1] - to[1]) / now.height], 1)
      held.current = to
    } else if (box) setBox({ ...box, to })
    else setAt(to)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const far = { PageUp: -0.25, PageDown: 0.25 }[event.key]
    const factor = { '+': 1 / 1.5, '=': 1 / 1.5, '-': 1.5 }[event.key]
    if (event.key === '0') setZoom(null)
    else if (far) move([far, 0], 1)
    else if (factor) move([0, 0], factor)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const onWheel = (event: WheelEvent) => {
    const now = scale.current
    if (!now || !(event.ctrlKey || event.metaKey)) return
    event.preventDefault()
    const { left, top } = canvas.current!.getBoundingClientRect()
    move([0, 0], Math.exp(event.deltaY * 0.0025), [(event.clientX - left - now.left) / now.width, (event.clientY - top - now.top) / now.height])
  }
  const release = () => {
    held.current = null
    if (box && scale.current) setZoom(zoomOf(box, scale.current) ?? zoom)
    setBox(null)
  }
  const tip = at && scale.current && nearestOf(paths, scale.current, at)
  return (
    <div class="drawn">
      <div class="drawn-box">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${scattered ? 'Points' : 'Path'} in x and y of ${series.map(({ label }) => label).join(', ')}. Drag a box to zoom, drag with Shift to move; so do plus, minus, Page Up and Page Down; 0 shows everything.`}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId)
            if (event.shiftKey) return void (held.current = placeOf(event))
            setBox({ from: placeOf(event), to: placeOf(event) })
          }}
          onPointerMove={drag}
          onPointerUp={release}
          onPointerCancel={() => (setBox(null), (held.current = null))}
          onWheel={onWheel}
          onPointerLeave={() => setAt(null)}
          onDblClick={() => setZoom(null)}
          onKeyDown={onKeyDown}
        />
        {box && <span class="drawn-zoom" style={{ left: Math.min(box.from[0], box.to[0]), top: Math.min(box.from[1], box.to[1]), width: Math.abs(box.to[0] - box.from[0]), height: Math.abs(box.to[1] - box.from[1]) }} />}
        {tip && !box && (
          <span class="drawn-tip" style={{ left: tip.left, top: tip.top }}>
            {series.length > 1 && `${series[tip.k]!.label} `}({number(tip.x, 5)}, {number(tip.y, 5)}) step {number(tip.step, 10)}
          </span>
        )}
      </div>
    </div>
  )
}

const MAX_SORTED = 20_000

/** The smallest and the largest of what can be shown; clipped, without the most extreme hundredth at each end. */
function extentOf(columns: Float64Array[], log: boolean, clip: boolean): Span {
  const shown = log ? columns.map((column) => column.filter((v) => v > 0)) : columns
  if (!clip) return spanOf(shown)
  const every = Math.ceil(shown.reduce((sum, { length }) => sum + length, 0) / MAX_SORTED)
  const all = Float64Array.from(shown.flatMap((column) => Array.from(column.filter((v, i) => i % every === 0 && Number.isFinite(v))))).sort()
  if (all.length <= 20) return spanOf(shown)
  return spanOf([[all[Math.floor(0.01 * (all.length - 1))]!, all[Math.ceil(0.99 * (all.length - 1))]!]])
}

function scaleOf({ width, height }: Sheet, paths: readonly Path[], options: ViewOptions, zoom: [Span, Span] | null): Scale {
  const { xlog, ylog, xlimits, ylimits, clip } = options
  const span = (columns: Float64Array[], log: boolean, clipped: boolean): Span => {
    const [low, high] = extentOf(columns, log, clipped)
    if (log && low > 0) return [low / (high / low) ** 0.06, high * (high / low) ** 0.06]
    return [low - (high - low) * 0.06, high + (high - low) * 0.06]
  }
  const xs = zoom?.[0] ?? xlimits ?? span(paths.map(({ x }) => x), xlog, false)
  const ys = zoom?.[1] ?? ylimits ?? span(paths.map(({ y }) => y), ylog, clip)
  return { xs, ys, xlog: xlog && xs[0] > 0, ylog: ylog && ys[0] > 0, left: LEFT, top: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM, ratio: 1 }
}

function paint(sheet: Sheet, scale: Scale, paths: readonly Path[], series: readonly Series[], options: ViewOptions, texts: boolean, scattered: boolean): void {
  const { ctx } = sheet
  paintAxes(sheet, scale)
  ctx.save()
  ctx.beginPath()
  ctx.rect(scale.left, scale.top, scale.width, scale.height)
  ctx.clip()
  paths.forEach((path, k) => (scattered ? paintPoints(sheet, scale, path, series[k]!, options) : paintPath(sheet, scale, path, series[k]!, options)))
  if (texts) paintNotes(sheet, scale, series)
  ctx.restore()
  paintNames(sheet, scale, axesOf(series.map(({ label }) => label)))
}

function paintPath({ ctx }: Sheet, scale: Scale, { x, y }: Path, { style }: Series, { frames }: ViewOptions): void {
  const { color, dash } = style
  const to = project(scale)
  const pen = canvasPen(ctx, 1)
  const points: number[] = []
  const n = x.length
  let [left, top] = [NaN, NaN]
  for (let i = 0; i < n; i++) {
    const [px, py] = [to.x(x[i]!), to.y(y[i]!)]
    // Of many points on one spot, one is drawn.
    if (!frames && n > MANY && i < n - 1 && Math.abs(px - left) < 0.5 && Math.abs(py - top) < 0.5) continue
    points.push(px, py)
    left = px
    top = py
  }
  if (frames) for (let i = 1; i < n; i++) pen.line(points.slice(2 * i - 2, 2 * i + 2), { color, width: 1.5, alpha: fading(n - 1 - i, n) })
  else pen.line(points, { color, dash, width: 1.4, alpha: 1 })
  ctx.fillStyle = color
  ctx.beginPath()
  ctx.arc(points[points.length - 2]!, points[points.length - 1]!, 4, 0, 2 * Math.PI)
  ctx.fill()
}

const MANY = 4_000

/** Each point by itself; they cover each other in part, so that it shows where they are dense. */
function paintPoints(sheet: Sheet, scale: Scale, path: Path, { style }: Series, { frames }: ViewOptions): void {
  const { ctx } = sheet
  const { x, y } = path
  const to = project(scale)
  const n = x.length
  ctx.fillStyle = style.color
  if (n > MANY && !frames) return paintCells(sheet, scale, path)
  const r = n > 400 ? 2 : 3
  for (let i = 0; i < n; i++) {
    const [left, top] = [to.x(x[i]!), to.y(y[i]!)]
    if (!(left >= scale.left - r && left <= scale.left + scale.width + r && top >= scale.top - r && top <= scale.top + scale.height + r)) continue
    ctx.globalAlpha = frames ? fading(n - 1 - i, n) : 0.7
    ctx.beginPath()
    ctx.arc(left, top, r, 0, 2 * Math.PI)
    ctx.fill()
  }
  ctx.globalAlpha = 1
}

const CELL_PX = 2
const STRENGTHS = [0.3, 0.55, 0.85]

/** Of very many points the spots that have one, two or more of them. */
function paintCells({ ctx }: Sheet, scale: Scale, { x, y }: Path): void {
  const to = project(scale)
  const [wide, high] = [Math.ceil(scale.width / CELL_PX), Math.ceil(scale.height / CELL_PX)]
  const counts = new Uint8Array(wide * high)
  for (let i = 0; i < x.length; i++) {
    const [column, row] = [Math.floor((to.x(x[i]!) - scale.left) / CELL_PX), Math.floor((to.y(y[i]!) - scale.top) / CELL_PX)]
    if (!(column >= 0 && column < wide && row >= 0 && row < high)) continue
    const at = row * wide + column
    if (counts[at]! < STRENGTHS.length) counts[at]!++
  }
  STRENGTHS.forEach((alpha, k) => {
    ctx.globalAlpha = alpha
    ctx.beginPath()
    counts.forEach((n, at) => n === k + 1 && ctx.rect(scale.left + (at % wide) * CELL_PX, scale.top + Math.floor(at / wide) * CELL_PX, CELL_PX, CELL_PX))
    ctx.fill()
  })
  ctx.globalAlpha = 1
}

function paintNames({ ctx, ink }: Sheet, { left, top, width, height }: Scale, [x, y]: AxisNames): void {
  ctx.fillStyle = ink.text
  ctx.textBaseline = 'alphabetic'
  ctx.textAlign = 'right'
  ctx.fillText(x, left + width - 4, top + height - 6)
  ctx.textAlign = 'left'
  ctx.fillText(y, left + 6, top + 10)
}

function paintAxes({ ctx, ink }: Sheet, scale: Scale): void {
  const to = project(scale)
  const [bottom, right] = [scale.top + scale.height, scale.left + scale.width]
  const xTicks = ticksOf(scale.xlog ? 'log' : 'number', scale.xs, Math.max(2, scale.width / 78))
  const yTicks = ticksOf(scale.ylog ? 'log' : 'number', scale.ys, Math.max(2, scale.height / 42))
  const rule = (x1: number, y1: number, x2: number, y2: number) => {
    ctx.beginPath()
    ctx.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5)
    ctx.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5)
    ctx.stroke()
  }
  ctx.lineWidth = 1
  ctx.strokeStyle = ink.grid
  ctx.fillStyle = ink.text
  ctx.textAlign = 'center'
  ctx.textBaseline = 'top'
  for (const v of xTicks.at) {
    rule(to.x(v), scale.top, to.x(v), bottom)
    ctx.fillText(xTicks.label(v), to.x(v), bottom + 7)
  }
  ctx.textAlign = 'right'
  ctx.textBaseline = 'middle'
  for (const v of yTicks.at) {
    rule(scale.left, to.y(v), right, to.y(v))
    ctx.fillText(yTicks.label(v), scale.left - 7, to.y(v))
  }
  ctx.strokeStyle = ink.axis
  rule(scale.left, bottom, right, bottom)
}

/** The newest texts first; one that would cover another is left out. */
function paintNotes({ ctx, ink }: Sheet, scale: Scale, series: readonly Series[]): void {
  const to = project(scale)
  const taken: [left: number, top: number, right: number, bottom: number][] = []
  ctx.textAlign = 'left'
  ctx.textBaseline = 'middle'
  for (const { records, style } of series) {
    for (const { x, y, text } of [...records.notes].reverse()) {
      const short = text.length > 40 ? `${text.slice(0, 39)}…` : text
      const [left, middle, width] = [to.x(x), to.y(y), ctx.measureText(short).width]
      if (!Number.isFinite(left + middle)) continue
      const flip = left + width + 12 > scale.left + scale.width
      const start = flip ? left - width - 8 : left + 8
      const box = [start - 3, middle - 9, start + width + 3, middle + 9] as [number, number, number, number]
      ctx.fillStyle = style.color
      ctx.beginPath()
      ctx.arc(left, middle, 2.5, 0, 2 * Math.PI)
      ctx.fill()
      if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) continue
      taken.push(box)
      ctx.globalAlpha = 0.82
      ctx.fillStyle = ink.ground
      ctx.fillRect(box[0], box[1], box[2] - box[0], box[3] - box[1])
      ctx.globalAlpha = 1
      ctx.fillStyle = ink.text
      ctx.fillText(short, start, middle)
    }
  }
}

function zoomOf({ from, to }: Box, scale: Scale): [Span, Span] | null {
  if (Math.abs(from[0] - to[0]) < MIN_BOX_PX || Math.abs(from[1] - to[1]) < MIN_BOX_PX) return null
  const value = (share: number, [low, high]: Span, log: boolean) => (log ? low * (high / low) ** share : low + (high - low) * share)
  const x = (px: number) => value((px - scale.left) / scale.width, scale.xs, scale.xlog)
  const y = (px: number) => value(1 - (px - scale.top) / scale.height, scale.ys, scale.ylog)
  const sorted = (a: number, b: number): Span => (a < b ? [a, b] : [b, a])
  return [sorted(x(from[0]), x(to[0])), sorted(y(from[1]), y(to[1]))]
}

function nearestOf(paths: readonly Path[], scale: Scale, [px, py]: [number, number]) {
  const to = project(scale)
  let [best, found] = [REACH_PX, null as { k: number; x: number; y: number; step: number; left: number; top: number } | null]
  paths.forEach(({ x, y, step }, k) => {
    for (let i = 0; i < x.length; i++) {
      const [left, top] = [to.x(x[i]!), to.y(y[i]!)]
      const away = Math.hypot(left - px, top - py)
      if (away < best) [best, found] = [away, { k, x: x[i]!, y: y[i]!, step: step[i]!, left, top }]
    }
  })
  return found
}
