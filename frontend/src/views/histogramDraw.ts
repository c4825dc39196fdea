// Four pictures of histograms over steps: an offset ridge, an overlay, a heat map over time, and percentile bands.

import type { Span } from './span'
import { largest, placeOf, spaced, stepPlaces, stepsWithin, valueTicks, type HistogramSeries } from './histograms'
import { count, number } from './format'
import { mapped, SEQUENTIAL } from './palette'
import { ticksOf } from './ticks'

export type HistogramKind = 'offset' | 'overlay' | 'heat' | 'bands'

export interface HistogramOptions {
  kind: HistogramKind
  symlog: boolean
  /** Counts by their logarithm, so that one full bin does not hide all others. */
  logCounts: boolean
  /** Steps at one distance from each other, whatever their true ones. */
  even: boolean
  values: Span | null
  steps: Span | null
}

export interface HistogramInk {
  ground: string
  text: string
  muted: string
  grid: string
  accent: string
  font: string
  dark: boolean
}

/** A step, and a bin of it. */
export interface Pointed {
  i: number
  bin: number
}

/** Where everything of a picture stands, in CSS pixels. */
export interface Layout {
  kind: HistogramKind
  box: { left: number; top: number; width: number; height: number }
  /** The steps in sight: from the first, to before the second. */
  range: [number, number]
  /** Bins in sight, as places. */
  bins: Span
  /** Across the picture for values or steps; down it for the other. */
  value: (place: number) => number
  step: (i: number) => number
  /** A count's share of the largest one, from 0 to 1, on the scale of counts. */
  share: (n: number) => number
  /** How many pixels the largest count is high. */
  height: number
  top: number
  /** The steps that are drawn. */
  drawn: number[]
}

const MARGIN = { left: 12, right: 64, top: 12, bottom: 30 }
const SIDE = 62
/** Ridges stand at least so far apart, in pixels; on a narrow picture further, so that each can be told. */
const [APART, APART_NARROW, NARROW] = [3, 9, 620]

export function layoutOf(series: HistogramSeries, options: HistogramOptions, width: number, height: number): Layout {
  const { kind, values, even } = options
  const across = kind === 'offset' || kind === 'overlay'
  const box = across
    ? { left: kind === 'overlay' ? SIDE : MARGIN.left, top: MARGIN.top, width: width - (kind === 'overlay' ? SIDE + 16 : MARGIN.left + MARGIN.right), height: height - MARGIN.top - MARGIN.bottom }
    : { left: SIDE, top: MARGIN.top, width: width - SIDE - 16, height: height - MARGIN.top - MARGIN.bottom }
  const n_bins = series.edges.length - 1
  const bins: Span = values ? [Math.max(0, placeOf(series.edges, values[0])), Math.min(n_bins, placeOf(series.edges, values[1]))] : [0, n_bins]
  if (bins[1] <= bins[0]) bins.splice(0, 2, 0, n_bins)
  const range = stepsWithin(series.steps, options.steps)
  const places = stepPlaces(series.steps.slice(...range), even)
  const shareOfBins = (place: number) => (place - bins[0]) / (bins[1] - bins[0])
  const ridge = kind === 'offset' ? Math.min(box.height * 0.4, 130) : 0
  const length = across ? box.height - ridge : box.width
  const air = kind === 'bands' || places.length < 2 ? 0 : kind === 'heat' ? box.width / (2 * places.length + 2) : 0
  const stepAt = (p: number) => (across ? box.top + ridge + p * length : box.left + air + p * (length - 2 * air))
  const seen = series.counts.slice(...range).map((row) => row.slice(Math.floor(bins[0]), Math.ceil(bins[1])))
  const drawn = kind === 'offset' ? spaced(places.map((p) => p * length), width < NARROW ? APART_NARROW : APART) : places.map((_, i) => i)
  const top = largest(seen)
  return {
    kind,
    box,
    range,
    bins,
    value: (place) => (across ? box.left + shareOfBins(place) * box.width : box.top + (1 - shareOfBins(place)) * box.height),
    step: (i) => stepAt(places[i - range[0]] ?? 1),
    share: !top ? () => 0 : options.logCounts ? (n) => Math.log1p(n) / Math.log1p(top) : (n) => n / top,
    height: kind === 'overlay' ? box.height : ridge,
    top,
    drawn: drawn.map((i) => i + range[0]),
  }
}

export const heightOf = (layout: Layout, n: number): number => layout.share(n) * layout.height

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
  if (layout.kind === 'offset') labelSteps(ctx, series, layout, ink, pointed, chosen)
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

/** From where to where a step reaches: to the middle between it and its neighbours. */
export function columnOf(layout: Layout, i: number): Span {
  const { box, range } = layout
  const at = layout.step(i)
  const left = i > range[0] ? (layout.step(i - 1) + at) / 2 : box.left
  const right = i < range[1] - 1 ? (layout.step(i + 1) + at) / 2 : box.left + box.width
  return [left, right]
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
    vertical(x, number(series.steps[i]!, 10))
  }
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
function labelSteps(ctx: CanvasRenderingContext2D, series: HistogramSeries, layout: Layout, ink: HistogramInk, pointed: Pointed | null, chosen: number): void {
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
    ctx.fillText(number(series.steps[i]!, 10), x, y - 3)
  }
}

/** The step and the bin under a point; null outside. */
export function pointedAt(series: HistogramSeries, layout: Layout, x: number, y: number): Pointed | null {
  const { box, kind, range } = layout
  if (x < box.left || x > box.left + box.width || y < box.top - 4 || y > box.top + box.height + 4 || !layout.drawn.length) return null
  const across = kind === 'offset' || kind === 'overlay'
  const share = across ? (x - box.left) / box.width : 1 - (y - box.top) / box.height
  const place = layout.bins[0] + share * (layout.bins[1] - layout.bins[0])
  const bin = Math.max(0, Math.min(series.edges.length - 2, Math.floor(place)))
  const closest = (distance: (i: number) => number) => layout.drawn.reduce((best, i) => (distance(i) < distance(best) ? i : best), layout.drawn[0]!)
  if (kind === 'overlay') {
    const base = box.top + box.height
    return { i: closest((i) => Math.abs(base - heightOf(layout, series.counts[i]![bin]!) - y)), bin }
  }
  if (kind === 'offset') {
    const front = [...layout.drawn].reverse().find((i) => y <= layout.step(i) + 1 && y >= layout.step(i) - Math.max(3, heightOf(layout, series.counts[i]![bin]!)))
    return { i: front ?? closest((i) => Math.abs(layout.step(i) - y)), bin }
  }
  for (let i = range[0]; i < range[1]; i++) if (x <= columnOf(layout, i)[1]) return { i, bin }
  return { i: range[1] - 1, bin }
}
