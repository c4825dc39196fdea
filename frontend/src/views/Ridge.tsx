// Histograms: the latest over each other, or over the steps as a ridge or as a heat map, at their true steps.

import { useState } from 'preact/hooks'
import { lowerBound } from './bounds'
import { project, type Scale } from './draw'
import { number } from './format'
import { usePainted, type Sheet } from './paint'
import { mapped, SEQUENTIAL } from './palette'
import { fading, type Series, type ViewOptions } from './series'
import { spanOf } from './space'
import type { Span } from './span'
import { Swatch } from './Swatch'
import { ticksOf } from './ticks'
import { counted, countsOf, densities, total, type Counts } from './values'

export interface Frame {
  step: number
  counts: Counts
}

const [LEFT, RIGHT, TOP, BOTTOM] = [14, 56, 24, 24]
const MAX_RIDGES = 40
const MAX_COLUMNS = 400
const SHADES = Array.from({ length: 64 }, (_, i) => `rgb(${mapped(SEQUENTIAL, i / 63).join(' ')})`)

/** A stream as histograms; numbers are counted into one. */
export function framesOf({ records }: Series): Frame[] {
  const { y, step } = records.numbers
  if (y.length && !records.lines.size) return [{ step: step[step.length - 1]!, counts: counted(y) }]
  return records.values.flatMap(({ step, value }) => {
    const counts = typeof value === 'object' ? countsOf(value) : null
    return counts && total(counts) ? [{ step, counts }] : []
  })
}

interface RidgeProps {
  series: readonly Series[]
  options: ViewOptions
  version: number
  dark: boolean
}

/** The histograms of some streams: their latest over each other; over the steps, a panel for each stream. */
export function Ridge({ series, ...props }: RidgeProps) {
  const all = series.map(framesOf)
  const over = props.options.frames || all.every((one) => one.length < 2) ? 'latest' : props.options.over
  if (series.length === 1 || over === 'latest') return <Panel series={series} all={all} over={over} {...props} />
  return (
    <div class="heats">
      {series.map((one, i) => all[i]!.length > 0 && (
        <section key={one.id} class="heats-one">
          <p class="names">
            <span>
              <Swatch style={one.style} /> {one.label}
            </span>
          </p>
          <Panel series={[one]} all={[all[i]!]} over={over} {...props} />
        </section>
      ))}
    </div>
  )
}

function Panel({ series, all, over, options, version, dark }: RidgeProps & { all: readonly Frame[][]; over: ViewOptions['over'] }) {
  const [tip, setTip] = useState('')
  const frames = options.last > 0 ? all.map((one) => one.slice(-options.last)) : all
  const canvas = usePainted(
    (sheet) => {
      if (over === 'ridge') paintRidge(sheet, frames[0]!, series[0]!.style.color, options.xlimits)
      else if (over === 'heat') paintHeat(sheet, frames[0]!)
      else paintLatest(sheet, frames, series, options)
    },
    [version, dark, options, over],
  )
  const point = ({ clientX, clientY }: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect()
    setTip(readAt(over, frames, options.xlimits, [clientX - box.left, clientY - box.top], [box.width, box.height]))
  }
  const newest = frames[0]?.[frames[0].length - 1]
  if (!newest) return <p class="chart-empty">No values to count yet</p>
  const said = over === 'latest' ? `Histogram of ${total(newest.counts)} values at step ${newest.step}` : `${frames[0]!.length} histograms over the steps`
  return (
    <div class="drawn">
      <div class="drawn-box">
        <canvas ref={canvas} role="img" aria-label={said} onMouseMove={point} onMouseLeave={() => setTip('')} />
      </div>
      <p class="names">
        <span>{tip || `step ${number(newest.step, 10)} · ${counting(newest.counts)}`}</span>
      </p>
    </div>
  )
}

function counting(counts: Counts): string {
  const odd = [['NaN', counts.n_nan], ['+∞', counts.n_posinf], ['−∞', counts.n_neginf]].filter(([, n]) => n).map(([name, n]) => `${(n as number).toLocaleString('en')} ${name}`)
  return [`${total(counts).toLocaleString('en')} values`, ...odd].join(' · ')
}

const edgesOf = (frames: readonly Frame[]): Span => spanOf(frames.map(({ counts }) => [counts.edges[0]!, counts.edges[counts.edges.length - 1]!]))

function boxOf({ width, height }: { width: number; height: number }, xs: Span, ys: Span): Scale {
  return { xs, ys, xlog: false, ylog: false, left: LEFT, top: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM, ratio: 1 }
}

/** Ticks below, for values; at the right, for steps or counts; and the names of both axes. */
function paintAxes({ ctx, ink }: Sheet, scale: Scale, [x, y]: readonly [string, string], rows: Span, place: (v: number) => number): void {
  const to = project(scale)
  const bottom = scale.top + scale.height
  ctx.fillStyle = ink.text
  ctx.textBaseline = 'top'
  ctx.textAlign = 'center'
  const columns = ticksOf('number', scale.xs, Math.max(2, scale.width / 78))
  for (const v of columns.at) ctx.fillText(columns.label(v), to.x(v), bottom + 7)
  ctx.textAlign = 'left'
  ctx.textBaseline = 'middle'
  const ticks = ticksOf('number', rows, Math.max(2, scale.height / 48))
  for (const v of ticks.at) ctx.fillText(ticks.label(v), scale.left + scale.width + 8, place(v))
  ctx.strokeStyle = ink.axis
  ctx.beginPath()
  ctx.moveTo(scale.left, bottom + 0.5)
  ctx.lineTo(scale.left + scale.width, bottom + 0.5)
  ctx.stroke()
  // In the corners beyond the plot, where nothing is drawn.
  ctx.textBaseline = 'top'
  ctx.fillText(y, scale.left + scale.width + 8, 4)
  ctx.textAlign = 'right'
  ctx.fillText(x, scale.left + scale.width + RIGHT, bottom + 7)
}

function outline(sheet: Sheet, { counts }: Frame, x: (v: number) => number, base: number, up: (density: number) => number): Path2D {
  const path = sheet.outline()
  path.moveTo(x(counts.edges[0]!), base)
  densities(counts).forEach((density, i) => {
    path.lineTo(x(counts.edges[i]!), base - up(density))
    path.lineTo(x(counts.edges[i + 1]!), base - up(density))
  })
  path.lineTo(x(counts.edges[counts.edges.length - 1]!), base)
  return path
}

function paintLatest(sheet: Sheet, all: readonly Frame[][], series: readonly Series[], { frames, history, xlimits }: ViewOptions): void {
  const shown = all.map((one) => one.slice(frames ? -1 - history : -1))
  // Streams of different sizes are compared by their shares; a single one shows its counts.
  const share = (frame: Frame) => (all.length > 1 ? total(frame.counts) : 1)
  const top = Math.max(...shown.flat().map((frame) => Math.max(...densities(frame.counts)) / share(frame)), Number.MIN_VALUE)
  const scale = boxOf(sheet, xlimits ?? edgesOf(shown.flat()), [0, top])
  const to = project(scale)
  const { ctx, ink } = sheet
  const newest = shown[0]?.[shown[0].length - 1]
  const width = newest ? newest.counts.edges[1]! - newest.counts.edges[0]! : 1
  const ys: Span = all.length > 1 ? [0, top] : [0, top * width]
  paintAxes(sheet, scale, ['value', all.length > 1 ? 'density' : 'count'], ys, (v) => scale.top + scale.height * (1 - v / ys[1]))
  clipSides(sheet, scale)
  shown.forEach((one, k) => {
    one.forEach((frame, i) => {
      const age = one.length - 1 - i
      const path = outline(sheet, frame, to.x, scale.top + scale.height, (d) => (d / share(frame) / top) * scale.height)
      ctx.globalAlpha = (age ? 0.5 : 1) * fading(age, one.length) * (shown.length > 1 || frames ? 0.45 : 0.85)
      ctx.fillStyle = series[k]!.style.color
      if (!age) ctx.fill(path)
      ctx.globalAlpha = fading(age, one.length)
      ctx.strokeStyle = age ? series[k]!.style.color : shown.length > 1 || frames ? series[k]!.style.color : ink.ground
      ctx.lineWidth = 1
      ctx.stroke(path)
    })
  })
  ctx.globalAlpha = 1
  ctx.restore()
}

/** Clip drawing to the limits of x, until `restore`. */
function clipSides({ ctx, height }: Sheet, { left, width }: Scale): void {
  ctx.save()
  ctx.beginPath()
  ctx.rect(left - 1, 0, width + 2, height)
  ctx.clip()
}

/** At most `max` frames, evenly over their steps; the first and the last are among them. */
export function evenly(frames: readonly Frame[], max: number): Frame[] {
  if (frames.length <= max) return [...frames]
  let steps = frames.map(({ step }) => step)
  if (steps[0] === steps.at(-1) || steps.some((step, i) => i > 0 && step < steps[i - 1]!)) steps = frames.map((_, i) => i)
  const [first, last] = [steps[0]!, steps.at(-1)!]
  const chosen = new Set([0, frames.length - 1])
  for (let k = 1; k < max - 1; k++) {
    const wanted = first + ((last - first) * k) / (max - 1)
    const after = Math.max(1, lowerBound(steps, wanted))
    chosen.add(wanted - steps[after - 1]! < steps[after]! - wanted ? after - 1 : after)
  }
  return frames.filter((_, i) => chosen.has(i))
}

function ridgeAt(height: number, n: number): { rise: number; base: (step: number, steps: Span) => number } {
  const room = height - TOP - BOTTOM
  const rise = n > 1 ? Math.min(room * 0.4, 90) : room
  return { rise, base: (step, [first, last]) => TOP + rise + (last > first ? (step - first) / (last - first) : 1) * (room - rise) }
}

function paintRidge(sheet: Sheet, all: readonly Frame[], color: string, limits: Span | null): void {
  const frames = evenly(all, MAX_RIDGES)
  const steps: Span = [frames[0]!.step, frames[frames.length - 1]!.step]
  const { rise, base } = ridgeAt(sheet.height, frames.length)
  const top = Math.max(...frames.map(({ counts }) => Math.max(...densities(counts))), Number.MIN_VALUE)
  const scale = boxOf(sheet, limits ?? edgesOf(frames), [0, 1])
  const to = project(scale)
  const { ctx, ink } = sheet
  paintAxes(sheet, scale, ['value', 'step'], steps[1] > steps[0] ? steps : [steps[0] - 1, steps[0] + 1], (v) => base(v, steps))
  clipSides(sheet, scale)
  frames.forEach((frame, i) => {
    const path = outline(sheet, frame, to.x, base(frame.step, steps), (d) => (d / top) * (rise - 4))
    // Older ones are paler, and none shows through.
    ctx.fillStyle = ink.ground
    ctx.fill(path)
    ctx.globalAlpha = 0.25 + (0.65 * (i + 1)) / frames.length
    ctx.fillStyle = color
    ctx.fill(path)
    ctx.globalAlpha = 1
    ctx.strokeStyle = ink.ground
    ctx.lineWidth = 0.75
    ctx.stroke(path)
  })
  ctx.restore()
}

/** Steps from left to right, values from bottom to top, shares as colours. */
function paintHeat(sheet: Sheet, all: readonly Frame[]): void {
  const frames = evenly(all, MAX_COLUMNS)
  const [scale, bounds] = heatAt(sheet, frames)
  const to = project(scale)
  const { ctx } = sheet
  const top = Math.max(...frames.map((frame) => Math.max(...densities(frame.counts)) / total(frame.counts)), Number.MIN_VALUE)
  ctx.save()
  ctx.beginPath()
  ctx.rect(scale.left, scale.top, scale.width, scale.height)
  ctx.clip()
  ctx.fillStyle = SHADES[0]!
  ctx.fillRect(scale.left, scale.top, scale.width, scale.height)
  frames.forEach((frame, i) => {
    const [left, right] = [Math.floor(to.x(bounds[i]!)), Math.ceil(to.x(bounds[i + 1]!))]
    densities(frame.counts).forEach((density, j) => {
      if (density <= 0) return
      const [high, low] = [to.y(frame.counts.edges[j + 1]!), to.y(frame.counts.edges[j]!)]
      ctx.fillStyle = SHADES[Math.round(63 * Math.sqrt(density / total(frame.counts) / top))]!
      ctx.fillRect(left, Math.floor(high), right - left, Math.ceil(low) - Math.floor(high))
    })
  })
  ctx.restore()
  paintAxes(sheet, scale, ['step', 'value'], scale.ys, to.y)
}

/** A column reaches half way to its neighbours. */
function heatAt(size: { width: number; height: number }, frames: readonly Frame[]): [Scale, number[]] {
  const steps = frames.map(({ step }) => step)
  const half = steps.length > 1 ? (steps[steps.length - 1]! - steps[0]!) / (steps.length - 1) / 2 : 0.5
  const bounds = [steps[0]! - half, ...steps.slice(1).map((step, i) => (step + steps[i]!) / 2), steps[steps.length - 1]! + half]
  return [boxOf(size, [bounds[0]!, bounds[bounds.length - 1]!], edgesOf(frames)), bounds]
}

function readAt(over: ViewOptions['over'], all: readonly Frame[][], limits: Span | null, [x, y]: [number, number], [width, height]: [number, number]): string {
  const one = all[0]
  if (!one?.length) return ''
  if (over === 'heat') {
    const frames = evenly(one, MAX_COLUMNS)
    const [scale, bounds] = heatAt({ width, height }, frames)
    const [step, value] = [scale.xs[0] + ((x - scale.left) / scale.width) * (scale.xs[1] - scale.xs[0]), scale.ys[1] - ((y - scale.top) / scale.height) * (scale.ys[1] - scale.ys[0])]
    const frame = frames[bounds.findIndex((_, i) => step >= bounds[i]! && step < bounds[i + 1]!)]
    return frame ? binText(frame, value) : ''
  }
  const frames = over === 'ridge' ? evenly(one, MAX_RIDGES) : one.slice(-1)
  const [low, high] = limits ?? edgesOf(over === 'ridge' ? frames : all.flatMap((some) => some.slice(-1)))
  const value = low + ((x - LEFT) / (width - LEFT - RIGHT)) * (high - low)
  const steps: Span = [frames[0]!.step, frames[frames.length - 1]!.step]
  const { base } = ridgeAt(height, frames.length)
  const frame = frames.find(({ step }) => base(step, steps) >= y) ?? frames[frames.length - 1]!
  return binText(frame, value)
}

function binText({ step, counts }: Frame, value: number): string {
  const i = counts.edges.findIndex((edge, k) => value >= edge && value < (counts.edges[k + 1] ?? -Infinity))
  if (i < 0) return `step ${number(step, 10)} · ${counting(counts)}`
  return `step ${number(step, 10)} · ${number(counts.edges[i]!, 4)} … ${number(counts.edges[i + 1]!, 4)}: ${counts.counts[i]!.toLocaleString('en')} of ${counting(counts)}`
}
