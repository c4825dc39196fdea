// Four pictures of histograms over steps: an offset ridge, an overlay, a heat map over time, and percentile bands.

import type { Span } from './span'
import { columnOf, heightOf, type Along, type HistogramOptions, type Layout, type Pointed } from './histogramLayout'
import { placeOf, valueTicks, type HistogramSeries } from './histograms'
import { count, dateTime, duration, number } from './format'
import { mapped, SEQUENTIAL } from './palette'
import { ticksOf } from './ticks'

export interface HistogramInk {
  ground: string
  text: string
  muted: string
  grid: string
  accent: string
  font: string
  dark: boolean
}

const shadeOf = (share: number, dark: boolean): string => `rgb(${mapped(SEQUENTIAL, dark ? 0.22 + 0.7 * share : 0.08 + 0.72 * share).join(' ')})`
const shareOf = (layout: Layout, i: number): number => (layout.range[1] - layout.range[0] < 2 ? 1 : (i - layout.range[0]) / (layout.range[1] - 1 - layout.range[0]))

export function drawHistograms(ctx: CanvasRenderingContext2D, series: HistogramSeries, options: HistogramOptions, layout: Layout, ink: HistogramInk, pointed: Pointed | null, chosen: number): void {
  const { box } = layout
  drawAxes(ctx, series, options, layout, ink)
  ctx.save()
  ctx.beginPath()
  ctx.rect(box.left, box.top - 2, box.width, box.height + 4)
  ctx.clip()
  const draw = { offset: drawOffset, overlay: drawOverlay, heat: drawHeat, bands: drawBands }[layout.kind]
  draw(ctx, series, layout, ink, pointed, chosen)
  ctx.restore()
  if (layout.kind === 'offset') labelSteps(ctx, series, options.along, layout, ink, pointed, chosen)
}

type Draw = (ctx: CanvasRenderingContext2D, series: HistogramSeries, layout: Layout, ink: HistogramInk, pointed: Pointed | null, chosen: number) => void

/** The outline of a step's counts: two points a bin. */
function trace(ctx: CanvasRenderingContext2D, counts: readonly number[], layout: Layout, base: number): void {
  const [from, end] = [Math.floor(layout.bins[0]), Math.ceil(layout.bins[1])]
  ctx.beginPath()
  ctx.moveTo(layout.value(from), base)
  for (let bin = from; bin < end; bin++) {
    const y = base - heightOf(layout, counts[bin]!)
    ctx.lineTo(layout.value(bin), y)
    ctx.lineTo(layout.value(bin + 1), y)
  }
  ctx.lineTo(layout.value(end), base)
}

const drawOffset: Draw = (ctx, series, layout, ink, pointed, chosen) => {
  const order = [...new Set([...layout.drawn, chosen, pointed?.i ?? chosen])].filter((i) => i >= layout.range[0] && i < layout.range[1]).sort((a, b) => a - b)
  for (const i of order) {
    const base = layout.step(i)
    const strong = i === pointed?.i
    trace(ctx, series.counts[i]!, layout, base)
    ctx.closePath()
    ctx.globalAlpha = strong ? 0.95 : 0.82
    ctx.fillStyle = shadeOf(shareOf(layout, i), ink.dark)
    ctx.fill()
    ctx.globalAlpha = 1
    ctx.strokeStyle = strong || i === chosen ? ink.accent : ink.ground
    ctx.lineWidth = strong ? 2 : i === chosen ? 1.5 : 0.8
    ctx.stroke()
  }
  if (pointed) dot(ctx, layout.value(pointed.bin + 0.5), layout.step(pointed.i) - heightOf(layout, series.counts[pointed.i]![pointed.bin]!), ink)
}

const drawOverlay: Draw = (ctx, series, layout, ink, pointed, chosen) => {
  const base = layout.box.top + layout.box.height
  const alpha = Math.max(0.25, Math.min(1, 12 / layout.drawn.length))
  const line = (i: number, width: number, color: string) => {
    trace(ctx, series.counts[i]!, layout, base)
    ctx.lineWidth = width
    ctx.strokeStyle = color
    ctx.stroke()
  }
  ctx.lineJoin = 'round'
  ctx.globalAlpha = alpha
  for (const i of layout.drawn) line(i, 1, shadeOf(shareOf(layout, i), ink.dark))
  ctx.globalAlpha = 1
  if (layout.drawn.includes(chosen)) line(chosen, 1.8, ink.accent)
  if (!pointed) return
  line(pointed.i, 2.2, ink.text)
  dot(ctx, layout.value(pointed.bin + 0.5), base - heightOf(layout, series.counts[pointed.i]![pointed.bin]!), ink)
}

const drawHeat: Draw = (ctx, series, layout, ink, pointed, chosen) => {
  const [from, end] = [Math.floor(layout.bins[0]), Math.ceil(layout.bins[1])]
  for (let i = layout.range[0]; i < layout.range[1]; i++) {
    // Whole pixels, so that neighbours leave no seam.
    const [left, right] = columnOf(layout, i).map(Math.round) as Span
    for (let bin = from; bin < end; bin++) {
      const n = series.counts[i]![bin]!
      if (!n) continue
      // Rare values are seen too.
      ctx.fillStyle = shadeOf(Math.sqrt(layout.share(n)), ink.dark)
      const y = Math.round(layout.value(bin + 1))
      ctx.fillRect(left, y, Math.max(1, right - left), Math.max(1, Math.round(layout.value(bin)) - y))
    }
  }
  drawColumn(ctx, layout, ink, chosen, 1)
  if (!pointed) return
  drawColumn(ctx, layout, ink, pointed.i, 1)
  const [left, right] = columnOf(layout, pointed.i)
  ctx.strokeStyle = ink.text
  ctx.lineWidth = 1.5
  ctx.strokeRect(left, layout.value(pointed.bin + 1), right - left, layout.value(pointed.bin) - layout.value(pointed.bin + 1))
}

function drawColumn(ctx: CanvasRenderingContext2D, layout: Layout, ink: HistogramInk, i: number, width: number): void {
  if (i < layout.range[0] || i >= layout.range[1]) return
  ctx.fillStyle = ink.accent
  ctx.fillRect(layout.step(i) - width / 2, layout.box.top, width, layout.box.height)
}

const drawBands: Draw = (ctx, series, layout, ink, pointed, chosen) => {
  const steps = layout.drawn.filter((i) => series.percentiles[i]!.every(Number.isFinite))
  const at = (i: number, k: number) => layout.value(placeOf(series.edges, series.percentiles[i]![k]!))
  const color = shadeOf(0.45, ink.dark)
  ctx.fillStyle = color
  for (const [low, high, alpha] of [[0, 4, 0.22], [1, 3, 0.38]] as const) {
    ctx.beginPath()
    for (const i of steps) ctx.lineTo(layout.step(i), at(i, low))
    for (const i of [...steps].reverse()) ctx.lineTo(layout.step(i), at(i, high))
    ctx.globalAlpha = alpha
    ctx.fill()
  }
  ctx.globalAlpha = 1
  ctx.beginPath()
  for (const i of steps) ctx.lineTo(layout.step(i), at(i, 2))
  ctx.strokeStyle = ink.text
  ctx.lineWidth = 1.8
  ctx.stroke()
  drawColumn(ctx, layout, ink, chosen, 1.5)
  if (!pointed) return
  drawColumn(ctx, layout, ink, pointed.i, 1)
  if (steps.includes(pointed.i)) for (let k = 0; k < 5; k++) dot(ctx, layout.step(pointed.i), at(pointed.i, k), ink)
}

function dot(ctx: CanvasRenderingContext2D, x: number, y: number, ink: HistogramInk): void {
  ctx.beginPath()
  ctx.arc(x, y, 4, 0, 2 * Math.PI)
  ctx.fillStyle = ink.accent
  ctx.fill()
  ctx.strokeStyle = ink.ground
  ctx.lineWidth = 1.5
  ctx.stroke()
}

function drawAxes(ctx: CanvasRenderingContext2D, series: HistogramSeries, options: HistogramOptions, layout: Layout, ink: HistogramInk): void {
  const { box, kind } = layout
  const bottom = box.top + box.height
  ctx.font = `11.5px ${ink.font}`
  ctx.lineWidth = 1
  const across = kind === 'offset' || kind === 'overlay'
  const vertical = (x: number, label: string) => {
    ctx.fillStyle = ink.grid
    ctx.fillRect(Math.round(x), box.top, 1, box.height)
    ctx.fillStyle = ink.muted
    ctx.textAlign = 'center'
    ctx.textBaseline = 'top'
    const half = ctx.measureText(label).width / 2
    ctx.fillText(label, Math.max(half, Math.min(x, box.left + box.width + (across && kind === 'offset' ? 60 : 14) - half)), bottom + 9)
  }
  const level = (y: number, label: string) => {
    ctx.fillStyle = ink.grid
    ctx.fillRect(box.left, Math.round(y), box.width, 1)
    ctx.fillStyle = ink.muted
    ctx.textAlign = 'right'
    ctx.textBaseline = 'middle'
    ctx.fillText(label, box.left - 8, y)
  }
  const values = valueTicks(series.edges, layout.bins, options.symlog, Math.max(2, Math.floor((across ? box.width : box.height) / (across ? 84 : 44))))
  for (const { place, label } of values) (across ? vertical : level)(layout.value(place), label)
  if (kind === 'overlay' && layout.top) {
    for (const { n, label } of countTicks(layout, options.logCounts)) level(bottom - heightOf(layout, n), label)
  }
  if (across) return
  let last = -Infinity
  for (const i of layout.drawn) {
    const x = layout.step(i)
    if (x - last < 80) continue
    last = x
    vertical(x, labelOf(series, i, options.along))
  }
}

/** A step by its number, or by its time: since the first one, or of the day. */
function labelOf({ steps, walls }: HistogramSeries, i: number, along: Along): string {
  if (along === 'relative') return duration(walls[i]! - walls[0]!)
  if (along !== 'wall') return number(steps[i]!, 10)
  const [at, first, last] = [walls[i]!, walls[0]!, walls.at(-1)!].map(dateTime) as [string, string, string]
  return first.slice(0, 10) === last.slice(0, 10) ? at.slice(11) : at.slice(5, 16)
}

/** Round counts; on a log scale powers of ten, and the largest. */
function countTicks({ top, box }: Layout, log: boolean): { n: number; label: string }[] {
  if (!log) {
    const ticks = ticksOf('number', [0, top], Math.max(2, Math.floor(box.height / 50)))
    return ticks.at.map((n) => ({ n, label: ticks.label(n) }))
  }
  const powers = Array.from({ length: Math.floor(Math.log10(top)) + 1 }, (_, e) => 10 ** e)
  return [0, ...powers].map((n) => ({ n, label: count(n) }))
}

/** The steps at the right of a ridge, as many as have room; those that matter always. */
function labelSteps(ctx: CanvasRenderingContext2D, series: HistogramSeries, along: Along, layout: Layout, ink: HistogramInk, pointed: Pointed | null, chosen: number): void {
  ctx.textAlign = 'left'
  ctx.textBaseline = 'middle'
  ctx.font = `11.5px ${ink.font}`
  const x = layout.box.left + layout.box.width + 8
  const inside = (i: number) => i >= layout.range[0] && i < layout.range[1]
  const first = [pointed?.i ?? -1, chosen].filter(inside)
  const taken: number[] = []
  for (const i of [...first, ...[...layout.drawn].reverse()]) {
    const y = layout.step(i)
    if (taken.some((other) => Math.abs(other - y) < 15)) continue
    taken.push(y)
    ctx.fillStyle = first.includes(i) ? ink.accent : ink.muted
    ctx.fillText(labelOf(series, i, along), x, y - 3)
  }
}
