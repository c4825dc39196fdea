// Points in x and y as paths, in the order in which they came; texts stand at the points that have one.

import { useRef, useState } from 'preact/hooks'
import { project, type Scale } from './draw'
import { number } from './format'
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
  texts: boolean
  version: number
  dark: boolean
}

export function Plane({ series, options, texts, version, dark }: PlaneProps) {
  const [zoom, setZoom] = useState<[Span, Span] | null>(null)
  const [box, setBox] = useState<Box | null>(null)
  const [at, setAt] = useState<[number, number] | null>(null)
  const scale = useRef<Scale | null>(null)
  const n = options.frames ? options.history + 1 : options.last || Infinity
  const paths: Path[] = series.map(({ records: { points } }) => ({ x: points.x.slice(-n), y: points.y.slice(-n), step: points.step.slice(-n) }))
  const canvas = usePainted(
    (sheet) => {
      scale.current = scaleOf(sheet, paths, options, zoom)
      paint(sheet, scale.current, paths, series, options, texts)
    },
    [version, dark, options, zoom, texts],
  )
  const placeOf = ({ clientX, clientY }: PointerEvent): [number, number] => {
    const { left, top } = canvas.current!.getBoundingClientRect()
    return [clientX - left, clientY - top]
  }
  const release = () => {
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
          aria-label={`Path in x and y of ${series.map(({ label }) => label).join(', ')}. Draw a box to zoom, press 0 to show everything.`}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId)
            setBox({ from: placeOf(event), to: placeOf(event) })
          }}
          onPointerMove={(event) => (box ? setBox({ ...box, to: placeOf(event) }) : setAt(placeOf(event)))}
          onPointerUp={release}
          onPointerCancel={() => setBox(null)}
          onPointerLeave={() => setAt(null)}
          onDblClick={() => setZoom(null)}
          onKeyDown={(event) => event.key === '0' && (event.stopPropagation(), setZoom(null))}
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

function scaleOf({ width, height }: Sheet, paths: readonly Path[], { xlog, ylog }: ViewOptions, zoom: [Span, Span] | null): Scale {
  const span = (columns: Float64Array[], log: boolean): Span => {
    const [low, high] = spanOf(log ? columns.map((column) => column.filter((v) => v > 0)) : columns)
    if (log && low > 0) return [low / (high / low) ** 0.06, high * (high / low) ** 0.06]
    return [low - (high - low) * 0.06, high + (high - low) * 0.06]
  }
  const [xs, ys] = zoom ?? [span(paths.map(({ x }) => x), xlog), span(paths.map(({ y }) => y), ylog)]
  return { xs, ys, xlog: xlog && xs[0] > 0, ylog: ylog && ys[0] > 0, left: LEFT, top: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM, ratio: 1 }
}

function paint(sheet: Sheet, scale: Scale, paths: readonly Path[], series: readonly Series[], options: ViewOptions, texts: boolean): void {
  const { ctx } = sheet
  paintAxes(sheet, scale)
  const to = project(scale)
  ctx.save()
  ctx.beginPath()
  ctx.rect(scale.left, scale.top, scale.width, scale.height)
  ctx.clip()
  const pen = canvasPen(ctx, 1)
  paths.forEach(({ x, y }, k) => {
    const { color, dash } = series[k]!.style
    const points: number[] = []
    for (let i = 0; i < x.length; i++) points.push(to.x(x[i]!), to.y(y[i]!))
    const n = x.length
    if (options.frames) for (let i = 1; i < n; i++) pen.line(points.slice(2 * i - 2, 2 * i + 2), { color, width: 1.5, alpha: fading(n - 1 - i, n) })
    else pen.line(points, { color, dash, width: 1.4, alpha: 1 })
    ctx.fillStyle = color
    ctx.beginPath()
    ctx.arc(points[2 * n - 2]!, points[2 * n - 1]!, 4, 0, 2 * Math.PI)
    ctx.fill()
  })
  if (texts) paintNotes(sheet, scale, series)
  ctx.restore()
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
