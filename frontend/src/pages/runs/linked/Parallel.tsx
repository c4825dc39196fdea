// Parallel coordinates: an axis for each of some columns, a line for each run; ranges on axes select.

import { useState } from 'preact/hooks'
import { filtered } from '../../../data/runs'
import { selected, selectedKeys, selectThese } from '../../../data/selection'
import type { Sheet } from '../../../views/paint'
import type { Span } from '../../../views/span'
import { nextAlong, within, type Axis } from '../../../data/axis'
import { Field, type Point, type Size } from './Field'
import { colors } from './state'
import { told } from './told'

const [SIDE, TOP, BOTTOM] = [41, 12, 12]
const REACH = 8
/** Pixels for a tick. */
const HIGH = 34

export function Parallel({ axes }: { axes: readonly Axis[] }) {
  const runs = filtered.value
  const [brushed, setBrushed] = useState<{ of: ReadonlySet<string>; ranges: Record<string, Span> }>({ of: new Set(), ranges: {} })
  const [turn, setTurn] = useState(0)
  // Ranges hold until something else selects.
  const ranges = brushed.of === selectedKeys.value ? brushed.ranges : {}
  const xOf = (k: number, { width }: Size) => SIDE + (axes.length > 1 ? (k * (width - 2 * SIDE)) / (axes.length - 1) : (width - 2 * SIDE) / 2)
  const yOf = (place: number, { height }: Size) => TOP + (1 - place) * (height - TOP - BOTTOM)
  const nearestAxis = (x: number, size: Size) => axes.reduce((best, _, k) => (Math.abs(xOf(k, size) - x) < Math.abs(xOf(best, size) - x) ? k : best), 0)
  const near = ([px, py]: Point, size: Size): number => {
    const k = Math.max(0, axes.filter((_, k) => xOf(k, size) <= px).length - 1)
    const [a, b] = [axes[k]!, axes[Math.min(axes.length - 1, k + 1)]!]
    const share = a === b ? 0 : (px - xOf(k, size)) / (xOf(k + 1, size) - xOf(k, size))
    let [found, nearest] = [-1, REACH]
    for (let i = 0; i < runs.length; i++) {
      const away = Math.abs(yOf(a.places[i]! + share * (b.places[i]! - a.places[i]!), size) - py)
      if (away < nearest) [found, nearest] = [i, away]
    }
    return found
  }
  const brush = (from: Point, to: Point, size: Size, too: boolean): boolean => {
    const { name } = axes[nearestAxis(from[0], size)]!
    if (from === to && !ranges[name]) return false
    const { [name]: _, ...others } = ranges
    const placeOf = (y: number) => 1 - (y - TOP) / (size.height - TOP - BOTTOM)
    const now = from === to ? others : { ...others, [name]: [from[1], to[1]].map(placeOf).sort((a, b) => a - b) as Span }
    const spans = axes.filter((axis) => now[axis.name]).map(({ name, places }) => ({ places, span: now[name]! }))
    selectThese(spans.length ? within(spans, runs.length).map((i) => runs[i]!.key) : [], too)
    setBrushed({ of: selectedKeys.peek(), ranges: now })
    return true
  }
  const walk = (key: string, from: number): number => {
    const now = (turn + (key === 'ArrowRight' ? 1 : key === 'ArrowLeft' ? axes.length - 1 : 0)) % axes.length
    setTurn(now)
    return /Up|Down/.test(key) || from < 0 ? nextAlong(axes[now]!.places, from, key === 'ArrowDown' ? -1 : 1) : from
  }
  const trace = (i: number, size: Size): Point[] => axes.map(({ places }, k) => [xOf(k, size), yOf(places[i]!, size)])
  const paint = (sheet: Sheet) => {
    const chosen = selectedKeys.value
    const lines = (on: boolean, alpha: number) => {
      sheet.ctx.globalAlpha = alpha
      sheet.ctx.lineWidth = on ? 1.75 : 1.25
      runs.forEach(({ key }, i) => {
        if (chosen.has(key) !== on) return
        sheet.ctx.strokeStyle = colors.value[i]!
        sheet.ctx.beginPath()
        paintLine(sheet, trace(i, sheet))
        sheet.ctx.stroke()
      })
      sheet.ctx.globalAlpha = 1
    }
    lines(false, selected.value.length ? 0.13 : Math.max(0.25, Math.min(0.8, 60 / runs.length)))
    lines(true, 0.95)
    axes.forEach((axis, k) => paintAxis(sheet, axis, xOf(k, sheet), k === axes.length - 1))
  }
  const over = (size: Size) =>
    axes.flatMap(({ name }, k) => {
      const span = ranges[name]
      return span ? [<rect key={name} class="field-brush" x={xOf(k, size) - 7} width={14} y={yOf(span[1], size)} height={yOf(span[0], size) - yOf(span[1], size)} />] : []
    })
  return (
    <Field
      label={`Parallel coordinates of ${axes.map(({ name }) => name).join(', ')}; left and right change the axis`}
      paint={paint}
      changes={[axes, colors.value]}
      near={near}
      brush={brush}
      walk={walk}
      tell={(i) => axes.map(({ name }) => `${name} ${told(runs[i]!, name)}`).join(', ')}
      hint="Drag along axes to select runs; click a range to drop it"
      mark={(i, size) => <polyline class="field-mark" points={trace(i, size).filter(([, y]) => !Number.isNaN(y)).join(' ')} />}
      over={over}
    />
  )
}

/** A line with gaps where the run has no value. */
function paintLine({ ctx }: Sheet, points: readonly Point[]): void {
  let down = false
  for (const [x, y] of points) {
    if (!Number.isNaN(y)) (down ? ctx.lineTo(x, y) : ctx.moveTo(x, y))
    down = !Number.isNaN(y)
  }
}

function paintAxis({ ctx, height, ink }: Sheet, axis: Axis, x: number, last: boolean): void {
  ctx.strokeStyle = ink.axis
  ctx.lineWidth = 1
  ctx.beginPath()
  ctx.moveTo(x, TOP)
  ctx.lineTo(x, height - BOTTOM)
  ctx.stroke()
  ctx.textBaseline = 'middle'
  ctx.textAlign = last ? 'left' : 'right'
  for (const { at, text } of axis.ticks(Math.max(2, (height - TOP - BOTTOM) / HIGH))) {
    const [place, y] = [x + (last ? 5 : -5), TOP + (1 - at) * (height - TOP - BOTTOM)]
    // Texts stand on lines: they keep a rim of the ground.
    const short = text.length > 9 ? `${text.slice(0, 8)}…` : text
    const { width } = ctx.measureText(short)
    ctx.globalAlpha = 0.75
    ctx.fillStyle = ink.ground
    ctx.fillRect(last ? place - 2 : place - width - 2, y - 7, width + 4, 14)
    ctx.globalAlpha = 1
    ctx.fillStyle = ink.text
    ctx.fillText(short, place, y)
  }
}
