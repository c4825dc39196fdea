// The runs by two of their columns: a point each, and, where the first is time, the best so far as a line.

import { useMemo } from 'preact/hooks'
import { filtered } from '../../../data/runs'
import { selected, selectedKeys, selectThese } from '../../../data/selection'
import type { Sheet } from '../../../views/paint'
import { bestSoFar, nextAlong, type Axis } from '../../../data/axis'
import { Field, type Point, type Size } from './Field'
import { colors } from './state'
import { told } from './told'

const [LEFT, RIGHT, TOP, BOTTOM] = [54, 14, 10, 24]
const REACH = 14
/** The radius of a dot; of many, which cover each other, a smaller one. */
const [DOT, SMALL, MANY] = [3.5, 2.5, 500]
/** Pixels for a tick. */
const [WIDE, HIGH] = [80, 36]

interface ScatterProps {
  label: string
  x: Axis
  y: Axis
  /** Draw the line of the best so far: the lowest or the highest. */
  best?: 'lowest' | 'highest'
}

export function Scatter({ label, x, y, best }: ScatterProps) {
  const runs = filtered.value
  const radius = runs.length > MANY ? SMALL : DOT
  const place = (i: number, { width, height }: Size): Point => [LEFT + x.places[i]! * (width - LEFT - RIGHT), TOP + (1 - y.places[i]!) * (height - TOP - BOTTOM)]
  const n = useMemo(() => runs.filter((_, i) => !Number.isNaN(x.places[i]! + y.places[i]!)).length, [x, y])
  const improvements = useMemo(() => (best ? bestSoFar(x.places, y.places, best === 'lowest') : []), [x, y, best])
  const near = ([px, py]: Point, size: Size): number => {
    let [found, nearest] = [-1, REACH]
    for (let i = 0; i < runs.length; i++) {
      const [a, b] = place(i, size)
      const away = Math.hypot(a - px, b - py)
      if (away < nearest) [found, nearest] = [i, away]
    }
    return found
  }
  const brush = (from: Point, to: Point, size: Size, too: boolean): boolean => {
    if (from === to) return false
    const inside = (one: number, axis: 0 | 1) => one >= Math.min(from[axis], to[axis]) && one <= Math.max(from[axis], to[axis])
    selectThese(runs.filter((_, i) => place(i, size).every((one, axis) => inside(one, axis as 0 | 1))).map(({ key }) => key), too)
    return true
  }
  const paint = (sheet: Sheet) => {
    paintAxes(sheet, x, y)
    const chosen = selectedKeys.value
    const dots = (on: boolean, alpha: number) => {
      sheet.ctx.globalAlpha = alpha
      runs.forEach(({ key }, i) => {
        const [a, b] = place(i, sheet)
        if (chosen.has(key) !== on || Number.isNaN(a + b)) return
        sheet.ctx.fillStyle = colors.value[i]!
        sheet.ctx.beginPath()
        sheet.ctx.arc(a, b, on ? radius + 1 : radius, 0, 2 * Math.PI)
        sheet.ctx.fill()
      })
      sheet.ctx.globalAlpha = 1
    }
    dots(false, selected.value.length ? 0.22 : 0.85)
    dots(true, 1)
    if (improvements.length) paintBest(sheet, improvements.map((i) => place(i, sheet)))
  }
  const walk = (key: string, from: number) => {
    const there = (axis: Axis, other: Axis) => axis.places.map((one, i) => (Number.isNaN(other.places[i]!) ? NaN : one))
    return nextAlong(/Left|Right/.test(key) ? there(x, y) : there(y, x), from, /Right|Up/.test(key) ? 1 : -1)
  }
  return (
    <Field
      label={label}
      paint={paint}
      changes={[x, y, best, colors.value]}
      near={near}
      brush={brush}
      walk={walk}
      tell={(i) => [y, x].map(({ name }) => `${name} ${told(runs[i]!, name)}`).join(', ')}
      hint={n < runs.length ? `${n} of ${runs.length} runs; the others lack a value here` : 'Drag to select runs; with Shift, further ones'}
      mark={(i, size) => (Number.isNaN(place(i, size)[0] + place(i, size)[1]) ? <g /> : <circle class="field-mark" cx={place(i, size)[0]} cy={place(i, size)[1]} r={radius + 4} />)}
    />
  )
}

function paintAxes({ ctx, width, height, ink }: Sheet, x: Axis, y: Axis): void {
  const [w, h] = [width - LEFT - RIGHT, height - TOP - BOTTOM]
  const rule = (a: Point, b: Point) => {
    ctx.beginPath()
    ctx.moveTo(...a)
    ctx.lineTo(...b)
    ctx.stroke()
  }
  ctx.lineWidth = 1
  ctx.fillStyle = ink.text
  ctx.strokeStyle = ink.grid
  ctx.textBaseline = 'middle'
  ctx.textAlign = 'right'
  for (const { at, text } of y.ticks(Math.max(2, h / HIGH))) {
    const place = TOP + (1 - at) * h
    rule([LEFT - 4, place], [width - RIGHT + 4, place])
    ctx.fillText(text, LEFT - 8, place)
  }
  for (const { at, text } of x.ticks(Math.max(2, w / WIDE))) {
    const place = LEFT + at * w
    rule([place, TOP - 4], [place, height - BOTTOM + 4])
    // The ends stay inside.
    const half = ctx.measureText(text).width / 2
    ctx.textAlign = 'center'
    ctx.fillText(text, Math.max(half + 2, Math.min(width - 6 - half, place)), height - 9)
  }
}

/** Steps from one best to the next, up to the end. */
function paintBest({ ctx, width, ink }: Sheet, bests: readonly Point[]): void {
  ctx.strokeStyle = ink.mark
  ctx.lineWidth = 1.75
  ctx.beginPath()
  bests.forEach(([a, b], i) => {
    if (i === 0) ctx.moveTo(a, b)
    else {
      ctx.lineTo(a, bests[i - 1]![1])
      ctx.lineTo(a, b)
    }
  })
  ctx.lineTo(width - RIGHT, bests.at(-1)![1])
  ctx.stroke()
}
