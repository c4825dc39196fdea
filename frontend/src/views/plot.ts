// A line chart on uPlot: it has the axes, the cursor and the box; the lines are drawn here, since each has its own x.

import uPlot from 'uplot'
import type { Span } from './span'
import { drawLines, drawMarks, pointAt, wholeOf, type Line, type Mark, type Scale } from './draw'
import { canvasPen } from './pens'
import type { Ink } from './ink'
import { sharedName } from './labels'
import { placeTicks, ticksOf, type AxisKind } from './ticks'

/** The kind of horizontal axis; `index` and `number` are plain numbers. */
export type XAxis = 'step' | 'relative' | 'wall' | 'index' | 'number'

export interface Model {
  lines: Line[]
  marks: Mark[]
  kind: XAxis
  xlog: boolean
  ylog: boolean
  /** The name of x, if it is not the usual one. */
  xname?: string
  /** The names along x, where it counts them. */
  places?: readonly string[] | undefined
  xs: Span
  ys: Span
  /** Of the axis at the right, where a line is read on it. */
  ys2?: Span
  ink: Ink
}

export interface Pointed {
  x: number
  /** The values of x that are as good as under the pointer. */
  reach: Span
  /** CSS pixels inside the chart. */
  left: number
  top: number
  /** The line that passes nearest. */
  line: string | null
  /** How many pixels each line passes from the pointer; empty where it has no height, such as that of a key or a finger. */
  away: ReadonlyMap<string, number>
}

const REACH = 6
/** A line that passes farther away is not pointed at. */
const NEAR = 30
const NOWHERE: ReadonlyMap<string, number> = new Map()
/** A pointer that moves less has not dragged; and within this time a second click makes it a double click. */
const [STILL_PX, TWICE_MS] = [4, 250]

export interface PlotEvents {
  /** The reader points at x; null when they left. */
  cursor: (at: Pointed | null) => void
  /** A box was drawn; `ys` is null where it spans the height. */
  zoom: (xs: Span | null, ys: Span | null) => void
  reset: () => void
  /** Move the visible range by a share of its width, and scale it by `factor` around a share of it. */
  move?: (by: number, factor: number, around: number) => void
  /** A line was clicked at x. */
  pick?: (line: string, x: number) => void
}

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
const PX_X_TICK = 78
const PX_Y_TICK = 42
const WHEEL_ZOOM = 0.0025
/** Characters of an axis' name. */
const MAX_NAME = 40

const shortened = (name: string): string => (name.length > MAX_NAME ? `${name.slice(0, MAX_NAME - 1)}…` : name)

/** The line that is nearest to the pointer, if it is near. */
function nearestOf(away: ReadonlyMap<string, number>): string | null {
  let [found, best] = [null as string | null, NEAR]
  for (const [id, px] of away) if (px < best) [found, best] = [id, px]
  return found
}

export class Plot {
  private u: uPlot | null = null
  private model: Model | null = null
  /** Of the host, in CSS pixels; null until it is known. */
  private size: { width: number; height: number } | null = null
  private pointed = false
  /** Whether it is pointed at by a share of the width, not by the mouse. */
  private byShare = false
  private highlight: string | null = null
  private dots: HTMLElement[] = []
  /** Ends a drag that goes on. */
  private letGo: (() => void) | null = null

  constructor(
    private readonly host: HTMLElement,
    private readonly events: PlotEvents,
  ) {}

  /** Draw a model: now, or in the same frame as soon as `resize` tells the size, since asking for it here would lay out the page. */
  show(model: Model): void {
    const before = this.model
    this.model = model
    const { xs, ys, ys2 } = model
    const data = (ys2 ? [xs, ys, ys2] : [xs, ys]) as unknown as uPlot.AlignedData
    if (this.u && before && before.kind === model.kind && before.xlog === model.xlog && before.ylog === model.ylog && !before.ys2 === !ys2) {
      this.u.setData(data, true)
      return
    }
    this.drop()
    if (!this.size) return
    this.u = new uPlot(this.options(model, this.size), data, this.host)
    this.listen(this.u.over)
  }

  resize(width: number, height: number): void {
    // An element outside of the page has no size; it may come back.
    if (width < 1 || height < 1) return
    this.size = { width, height }
    if (!this.u && this.model) this.show(this.model)
    else if (this.u && (this.u.width !== width || this.u.height !== height)) this.u.setSize({ width, height })
  }

  /** Show where another chart's reader points at; returns the place, if it is in sight here. */
  point(x: number | null): Pointed | null {
    if (!this.u || this.pointed) return null
    const place = x === null ? -10 : this.u.valToPos(x, 'x')
    const seen = x !== null && place >= 0 && place <= this.u.over.clientWidth
    this.u.setCursor({ left: seen ? place : -10, top: -10 }, false)
    this.placeDots(x)
    return seen ? { x, reach: [x, x], left: place + this.u.over.offsetLeft, top: 0, line: null, away: NOWHERE } : null
  }

  /** Move the cursor by hand, for keys and fingers: a share of the width. */
  pointAt(share: number): void {
    if (!this.u) return
    this.pointed = this.byShare = true
    this.u.setCursor({ left: share * this.u.over.clientWidth, top: this.u.over.clientHeight / 2 })
    this.byShare = false
  }

  leave(): void {
    this.pointed = false
    this.emphasize(null)
    this.events.cursor(null)
    this.point(null)
  }

  emphasize(id: string | null): void {
    if (id === this.highlight) return
    this.highlight = id
    this.u?.redraw(false, false)
  }

  destroy(): void {
    this.drop()
    this.model = null
  }

  private drop(): void {
    this.letGo?.()
    this.u?.destroy()
    this.u = null
    this.dots = []
  }

  private options({ kind, xlog, ylog, ys2 }: Model, size: { width: number; height: number }): uPlot.Options {
    const xKind: AxisKind = xlog ? 'log' : kind === 'relative' || kind === 'wall' ? kind : 'number'
    const yKind: AxisKind = ylog ? 'log' : 'number'
    const ink = () => this.model!.ink
    const axis = (which: AxisKind, side: number, px: number): uPlot.Axis => {
      const ticks = (u: uPlot, low: number, high: number) => {
        const n = Math.max(2, ((side === 2 ? u.width : u.height) - 40) / px)
        const places = side === 2 && this.model!.places
        return places ? placeTicks(places, [low, high], n) : ticksOf(which, [low, high], n)
      }
      return {
        side,
        scale: side === 2 ? 'x' : side === 3 ? 'y' : 'y2',
        stroke: () => ink().text,
        grid: { show: side !== 1, stroke: () => ink().grid, width: 1 },
        ticks: { show: false },
        border: { show: side === 2, stroke: () => ink().axis, width: 1 },
        font: FONT,
        gap: 6,
        size: side === 2 ? 26 : (_, labels) => 14 + 6.4 * Math.max(2, ...(labels ?? []).map((l) => l.length)),
        splits: (u, _, low, high) => ticks(u, low, high).at,
        filter: (_, splits) => splits,
        values: (u, splits) => {
          const scale = u.scales[side === 2 ? 'x' : side === 3 ? 'y' : 'y2']!
          return splits.map(ticks(u, scale.min!, scale.max!).label)
        },
      }
    }
    return {
      ...size,
      padding: [10, 12, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, distr: xlog ? 3 : 1, range: () => this.model!.xs },
        y: { distr: ylog ? 3 : 1, range: () => this.model!.ys },
        ...(ys2 && { y2: { distr: ylog ? (3 as const) : (1 as const), range: () => this.model!.ys2! } }),
      },
      axes: [axis(xKind, 2, PX_X_TICK), axis(yKind, 3, PX_Y_TICK), ...(ys2 ? [axis(yKind, 1, PX_Y_TICK)] : [])],
      series: [{}, ...(ys2 ? ['y', 'y2'] : ['y']).map((scale) => ({ scale, paths: () => null, points: { show: false } }))],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: true, uni: 24, dist: 6, setScale: false },
        bind: { dblclick: () => () => (this.events.reset(), null) },
      },
      hooks: {
        draw: [(u) => this.draw(u)],
        setCursor: [(u) => this.moved(u)],
        setSelect: [(u) => this.selected(u)],
      },
    }
  }

  private scale(u: uPlot): Scale {
    const { xs, ys, ys2, xlog, ylog } = this.model!
    const { left, top, width, height } = u.bbox
    return { xs, ys, ys2, xlog, ylog, left, top, width, height, ratio: uPlot.pxRatio }
  }

  private draw(u: uPlot): void {
    const scale = this.scale(u)
    const { ctx } = u
    ctx.save()
    ctx.beginPath()
    ctx.rect(scale.left, scale.top, scale.width, scale.height)
    ctx.clip()
    const pen = canvasPen(ctx, scale.ratio)
    drawMarks(pen, this.model!.marks, scale, this.model!.ink.text)
    drawLines(pen, this.model!.lines, scale, this.highlight)
    ctx.restore()
    this.nameAxes(ctx, scale)
  }

  /** The name of x, if it is not the usual one; of both y axes, if there are two, those of their lines. */
  private nameAxes(ctx: CanvasRenderingContext2D, { left, top, width, height, ratio }: Scale): void {
    const { ink, lines, xname = '', ys2 } = this.model!
    const side = (right: boolean) => (ys2 ? shortened(sharedName(lines.flatMap(({ label, second = false, alpha = 1, earlier }) => (second === right && alpha === 1 && !earlier ? [label] : [])))) : '')
    ctx.save()
    ctx.font = FONT.replace('11px', `${11 * ratio}px`)
    ctx.textBaseline = 'alphabetic'
    ctx.lineJoin = 'round'
    ctx.lineWidth = 4 * ratio
    ctx.strokeStyle = ink.ground
    ctx.fillStyle = ink.text
    const write = (text: string, align: CanvasTextAlign, x: number, y: number) => {
      ctx.textAlign = align
      ctx.strokeText(text, x, y)
      ctx.fillText(text, x, y)
    }
    write(xname, 'right', left + width - 4 * ratio, top + height - 6 * ratio)
    write(side(false), 'left', left + 4 * ratio, top + 8 * ratio)
    write(side(true), 'right', left + width - 4 * ratio, top + 8 * ratio)
    ctx.restore()
  }

  /** Dragging with Shift and scrolling sideways move the visible range; pinching and Ctrl with the wheel zoom. */
  private listenToMoves(over: HTMLElement, move: NonNullable<PlotEvents['move']>): void {
    let held: number | null = null
    over.addEventListener(
      'mousedown',
      (event) => {
        if (!event.shiftKey || event.button !== 0) return
        // The box of a zoom does not begin.
        event.stopImmediatePropagation()
        event.preventDefault()
        held = event.clientX
        const drag = ({ clientX }: MouseEvent) => {
          move((held! - clientX) / over.clientWidth, 1, 0.5)
          held = clientX
        }
        const release = () => {
          removeEventListener('mousemove', drag, true)
          removeEventListener('mouseup', release, true)
          held = null
          this.letGo = null
        }
        addEventListener('mousemove', drag, true)
        addEventListener('mouseup', release, true)
        this.letGo = release
      },
      true,
    )
    over.addEventListener(
      'wheel',
      (event) => {
        const { deltaX, deltaY, shiftKey, ctrlKey, metaKey } = event
        const sideways = shiftKey && !deltaX ? deltaY : deltaX
        const box = over.getBoundingClientRect()
        if (ctrlKey || metaKey) move(0, Math.exp(deltaY * WHEEL_ZOOM), (event.clientX - box.left) / box.width)
        else if (Math.abs(sideways) > Math.abs(deltaY) || shiftKey) move(sideways / box.width, 1, 0.5)
        else return
        event.preventDefault()
      },
      { passive: false },
    )
  }

  private listen(over: HTMLElement): void {
    if (this.events.move) this.listenToMoves(over, this.events.move)
    over.addEventListener('mouseenter', () => (this.pointed = true))
    over.addEventListener('mouseleave', () => this.leave())
    if (this.events.pick) this.listenToClicks(over, this.events.pick)
    const touched = ({ touches }: TouchEvent) => {
      const box = over.getBoundingClientRect()
      if (touches.length === 1) this.pointAt(Math.min(1, Math.max(0, (touches[0]!.clientX - box.left) / box.width)))
    }
    over.addEventListener('touchstart', touched, { passive: true })
    over.addEventListener('touchmove', touched, { passive: true })
  }

  /** A click on a line, where nothing is dragged, and that is not the first of two, which show everything. */
  private listenToClicks(over: HTMLElement, pick: NonNullable<PlotEvents['pick']>): void {
    let [down, timer] = [[0, 0] as [number, number], 0]
    over.addEventListener('mousedown', ({ clientX, clientY }) => (down = [clientX, clientY]))
    over.addEventListener('click', ({ clientX, clientY, detail, shiftKey }) => {
      clearTimeout(timer)
      if (detail > 1 || shiftKey || Math.hypot(clientX - down[0], clientY - down[1]) > STILL_PX) return
      const { left, top } = over.getBoundingClientRect()
      timer = window.setTimeout(() => {
        const line = this.u && nearestOf(this.distances(this.u, clientX - left, clientY - top))
        if (line) pick(line, this.u!.posToVal(clientX - left, 'x'))
      }, TWICE_MS)
    })
  }

  private moved(u: uPlot): void {
    if (!this.pointed) return
    const { left = -10, top = 0 } = u.cursor
    if (left < 0) return
    const x = u.posToVal(left, 'x')
    this.placeDots(x)
    const away = this.distances(u, left, top)
    // A single line needs no emphasis.
    const line = new Set(this.model!.lines.map(wholeOf)).size > 1 ? nearestOf(away) : null
    this.emphasize(line)
    const reach: Span = [u.posToVal(left - REACH, 'x'), u.posToVal(left + REACH, 'x')]
    this.events.cursor({ x, reach, left: left + u.over.offsetLeft, top: top + u.over.offsetTop, line, away: this.byShare ? NOWHERE : away })
  }

  /** How many pixels each line passes from a place. */
  private distances(u: uPlot, left: number, top: number): Map<string, number> {
    const found = new Map<string, number>()
    for (const line of this.model!.lines) {
      const { y, second } = line
      const i = pointAt(line, u.posToVal(left, 'x'))
      if (i < 0 || !Number.isFinite(y[i]!)) continue
      const [id, away] = [wholeOf(line), Math.abs(u.valToPos(y[i]!, second ? 'y2' : 'y') - top)]
      found.set(id, Math.min(away, found.get(id) ?? Infinity))
    }
    return found
  }

  private placeDots(x: number | null): void {
    const u = this.u!
    const { lines } = this.model!
    for (let k = 0; k < Math.max(this.dots.length, Math.min(lines.length, 16)); k++) {
      const line = lines[k]
      const i = x === null || !line ? -1 : pointAt(line, x)
      const [left, top] = i < 0 ? [NaN, NaN] : [u.valToPos(line!.x[i]!, 'x'), u.valToPos(line!.y[i]!, line!.second ? 'y2' : 'y')]
      const inside = left >= -1 && left <= u.over.clientWidth + 1 && top >= -1 && top <= u.over.clientHeight + 1
      if (!this.dots[k] && inside) {
        this.dots[k] = u.over.appendChild(document.createElement('div'))
        this.dots[k]!.className = 'plot-dot'
      }
      const dot = this.dots[k]
      if (!dot) continue
      dot.style.display = inside ? '' : 'none'
      if (inside) {
        dot.style.transform = `translate(${left}px, ${top}px)`
        dot.style.background = line!.style.color
      }
    }
  }

  private selected(u: uPlot): void {
    const { left, top, width, height } = u.select
    if (width < 3 && height < 3) return
    const span = (a: number, b: number, axis: 'x' | 'y'): Span => {
      const ends = [u.posToVal(a, axis), u.posToVal(b, axis)].sort((p, q) => p - q)
      return ends as Span
    }
    const wide = width < u.over.clientWidth - 1
    const high = height < u.over.clientHeight - 1
    this.events.zoom(wide ? span(left, left + width, 'x') : null, high ? span(top, top + height, 'y') : null)
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
  }
}
