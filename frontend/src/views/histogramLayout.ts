// Where bins, steps and counts stand on a picture of histograms, and what stands under a point of it.

import type { Span } from './span'
import { largest, placeOf, spaced, stepPlaces, stepsWithin, type HistogramSeries } from './histograms'

export type HistogramKind = 'offset' | 'overlay' | 'heat' | 'bands'
/** What steps are apart by: their numbers, one distance, or the time since the first one or of the day. */
export type Along = 'step' | 'even' | 'relative' | 'wall'

export interface HistogramOptions {
  kind: HistogramKind
  symlog: boolean
  /** Logarithms of the counts, so that one large bin does not hide the others. */
  logCounts: boolean
  along: Along
  values: Span | null
  steps: Span | null
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
/** More at the right, for days and times. */
const WIDE = 20
const SIDE = 62
/** The smallest distance of ridges in pixels; larger on narrow pictures, to keep them distinct. */
const [APART, APART_NARROW, NARROW] = [3, 9, 620]

export function layoutOf(series: HistogramSeries, options: HistogramOptions, width: number, height: number): Layout {
  const { kind, values, along } = options
  const right = MARGIN.right + (along === 'wall' ? WIDE : 0)
  const across = kind === 'offset' || kind === 'overlay'
  const box = across
    ? { left: kind === 'overlay' ? SIDE : MARGIN.left, top: MARGIN.top, width: width - (kind === 'overlay' ? SIDE + 16 : MARGIN.left + right), height: height - MARGIN.top - MARGIN.bottom }
    : { left: SIDE, top: MARGIN.top, width: width - SIDE - 16, height: height - MARGIN.top - MARGIN.bottom }
  const n_bins = series.edges.length - 1
  const bins: Span = values ? [Math.max(0, placeOf(series.edges, values[0])), Math.min(n_bins, placeOf(series.edges, values[1]))] : [0, n_bins]
  if (bins[1] <= bins[0]) bins.splice(0, 2, 0, n_bins)
  const range = stepsWithin(series.steps, options.steps)
  const places = stepPlaces((along === 'relative' || along === 'wall' ? series.walls : series.steps).slice(...range), along === 'even')
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

/** From where to where a step reaches: to the middle between it and its neighbours. */
export function columnOf(layout: Layout, i: number): Span {
  const { box, range } = layout
  const at = layout.step(i)
  const left = i > range[0] ? (layout.step(i - 1) + at) / 2 : box.left
  const right = i < range[1] - 1 ? (layout.step(i + 1) + at) / 2 : box.left + box.width
  return [left, right]
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
