// Lines in three dimensions: turned by dragging or with the arrow keys, nearer parts stronger.

import { useEffect, useRef, useState } from 'preact/hooks'
import { number } from './format'
import { axesOf, type AxisNames } from './labels'
import { usePainted, type Context, type Sheet } from './paint'
import { fading, type Series, type ViewOptions } from './series'
import { FIRST, seen, spanOf, turned, unit, type Turn } from './space'

const STEP = 0.12
const RADIANS_A_PX = 0.008
const SLICES = 24
const MAX_DRAWN = 20_000
const AXES = ['x', 'y', 'z'] as const

type Path = { x: Float64Array; y: Float64Array; z: Float64Array }

function pathOf({ records }: Series, { last, frames, history }: ViewOptions): Path {
  const { x, y, z } = records.points
  const n = frames ? history + 1 : last || x.length
  const shown = (column: Float64Array) => column.subarray(n ? -n : column.length)
  const every = Math.ceil(Math.min(n, x.length) / MAX_DRAWN)
  // Of very many points each so manieth is drawn, the last always.
  const some = (column: Float64Array) => (every > 1 ? shown(column).filter((_, i, all) => (all.length - 1 - i) % every === 0) : shown(column))
  return { x: some(x), y: some(y), z: some(z) }
}

interface SpaceProps {
  series: readonly Series[]
  options: ViewOptions
  version: number
  dark: boolean
  /** Another number whenever it is to be seen as at first. */
  home?: number
}

export function Space({ series, options, version, dark, home }: SpaceProps) {
  const [turn, setTurn] = useState(FIRST)
  useEffect(() => setTurn(FIRST), [home])
  const held = useRef<[number, number] | null>(null)
  const paths = series.map((one) => pathOf(one, options))
  const canvas = usePainted((sheet) => paint(sheet, turn, paths, series, options), [version, turn, dark, options])
  const change = (by: Partial<Turn>) => setTurn((now) => turned(now, by))
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowLeft: { yaw: STEP }, ArrowRight: { yaw: -STEP }, ArrowUp: { pitch: STEP }, ArrowDown: { pitch: -STEP }, '+': { zoom: 1.15 }, '=': { zoom: 1.15 }, '-': { zoom: 1 / 1.15 } }[event.key]
    if (by) change(by)
    else if (event.key === '0') setTurn(FIRST)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const onPointerMove = ({ clientX, clientY }: PointerEvent) => {
    if (!held.current) return
    change({ yaw: -(clientX - held.current[0]) * RADIANS_A_PX, pitch: (clientY - held.current[1]) * RADIANS_A_PX })
    held.current = [clientX, clientY]
  }
  const n = paths.reduce((sum, { x }) => sum + x.length, 0)
  return (
    <div class="drawn">
      <div class="drawn-box">
        <canvas
          ref={canvas}
          class="space"
          tabIndex={0}
          role="img"
          aria-label={`Line in three dimensions through ${n} points. Drag or use the arrow keys to turn it, plus and minus to zoom, 0 to reset.`}
          onKeyDown={onKeyDown}
          onDblClick={() => setTurn(FIRST)}
          onWheel={(event) => {
            // In a notebook's box the document only knows that the box has the focus.
            if ((event.currentTarget.getRootNode() as Document | ShadowRoot).activeElement !== event.currentTarget && !event.ctrlKey) return
            event.preventDefault()
            change({ zoom: event.deltaY < 0 ? 1.1 : 1 / 1.1 })
          }}
          onPointerDown={(event) => {
            held.current = [event.clientX, event.clientY]
            event.currentTarget.setPointerCapture(event.pointerId)
          }}
          onPointerMove={onPointerMove}
          onPointerUp={() => (held.current = null)}
          onPointerCancel={() => (held.current = null)}
        />
      </div>
    </div>
  )
}

function paint({ ctx, outline, width, height, ink }: Sheet, turn: Turn, paths: Path[], series: readonly Series[], { frames, xlimits, ylimits }: ViewOptions): void {
  const limits = [xlimits, ylimits, null]
  const spans = AXES.map((axis, k) => limits[k] ?? spanOf(paths.map((path) => path[axis])))
  const scale = (Math.min(width, height * 1.1) / 4) * turn.zoom
  const place = (x: number, y: number, z: number) => {
    const [right, down, near] = seen(turn, x, y, z)
    return [width / 2 + right * scale, height / 2 + down * scale, near] as const
  }
  paintBox(ctx, place, spans, ink, axesOf(series.map(({ label }) => label)))
  paths.forEach(({ x, y, z }, k) => {
    const points = Array.from(x, (_, i) => place(unit(spans[0]!, x[i]!), unit(spans[1]!, y[i]!), unit(spans[2]!, Number.isNaN(z[i]!) ? 0 : z[i]!)))
    ctx.strokeStyle = ctx.fillStyle = series[k]!.style.color
    // Pieces of equal opacity are drawn together; near or new ones are more opaque.
    const strength = (i: number) => (frames ? fading(points.length - 1 - i, points.length) : 0.35 + 0.65 * Math.min(1, Math.max(0, (points[i]![2] + 1) / 2)))
    const slices = Array.from({ length: SLICES }, outline)
    for (let i = 1; i < points.length; i++) {
      if (!Number.isFinite(points[i]![0] + points[i]![1] + points[i - 1]![0] + points[i - 1]![1])) continue
      const slice = slices[Math.min(SLICES - 1, Math.floor(strength(i) * SLICES))]!
      slice.moveTo(points[i - 1]![0], points[i - 1]![1])
      slice.lineTo(points[i]![0], points[i]![1])
    }
    slices.forEach((slice, i) => {
      ctx.globalAlpha = (i + 1) / SLICES
      ctx.lineWidth = 0.8 + (1.2 * i) / SLICES
      ctx.stroke(slice)
    })
    ctx.globalAlpha = 1
    const last = points[points.length - 1]
    if (!last) return
    ctx.beginPath()
    ctx.arc(last[0], last[1], 4, 0, 2 * Math.PI)
    ctx.fill()
  })
}

type Place = (x: number, y: number, z: number) => readonly [number, number, number]

function paintBox(ctx: Context, place: Place, spans: (readonly [number, number])[], ink: Sheet['ink'], names: AxisNames): void {
  const corner = (bits: number) => [bits & 1 ? 1 : -1, bits & 2 ? 1 : -1, bits & 4 ? 1 : -1] as const
  const far = Array.from({ length: 8 }, (_, i) => i).sort((a, b) => place(...corner(a))[2] - place(...corner(b))[2])[0]!
  ctx.lineWidth = 1
  for (let a = 0; a < 8; a++) {
    for (const bit of [1, 2, 4]) {
      if (a & bit) continue
      const b = a | bit
      // The edges at the far corner carry the box, the others only hint at it.
      ctx.strokeStyle = a === far || b === far ? ink.axis : ink.grid
      const [p, q] = [place(...corner(a)), place(...corner(b))]
      ctx.beginPath()
      ctx.moveTo(p[0], p[1])
      ctx.lineTo(q[0], q[1])
      ctx.stroke()
    }
  }
  ctx.fillStyle = ink.text
  ctx.textAlign = 'center'
  ctx.textBaseline = 'middle'
  names.forEach((name, k) => {
    const bit = 1 << k
    // The lowest edge along this axis that is nearest to the reader has its numbers.
    const edges = [0, 1, 2, 3, 4, 5, 6, 7].filter((at) => !(at & bit))
    const middle = (at: number) => place(...(corner(at).map((v, i) => (i === k ? 0 : v)) as [number, number, number]))
    const edge = edges.sort((a, b) => (k === 2 ? middle(a)[0] - middle(b)[0] : middle(b)[1] - middle(a)[1]))[0]!
    const out = (p: readonly [number, number, number], px: number): [number, number] => {
      const [cx, cy] = place(0, 0, 0)
      const away = Math.hypot(p[0] - cx, p[1] - cy) || 1
      return [p[0] + ((p[0] - cx) / away) * px, p[1] + ((p[1] - cy) / away) * px]
    }
    const [low, high] = spans[k]!
    // A little inside the ends, so that the numbers of two axes that meet do not cover each other.
    const along = (share: number) => place(...(corner(edge).map((v, i) => (i === k ? 2 * share - 1 : v)) as [number, number, number]))
    ctx.fillText(number(low, 3), ...out(along(0.08), 14))
    ctx.fillText(number(high, 3), ...out(along(0.92), 14))
    ctx.fillText(name, ...out(middle(edge), 16))
  })
}
