// The line chart as a part of a page: finds its ranges, keeps the plot at the size of its box, shows values at the cursor.

import type { Signal } from '@preact/signals'
import { useContext, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { Span } from './span'
import { extentOf, rangeOf } from './bounds'
import { wholeOf, type Line, type Mark } from './draw'
import { Legend, LinkedValues } from './Legend'
import { Plot, type Model, type Pointed, type XAxis } from './plot'
import { readInk, type Ink } from './ink'
import { printing } from './printing'
import { Root } from './root'
import { svgOf } from './export'
import { X_LABELS } from './print'

export interface Cursor {
  x: number
  chart: string
}

export interface ChartProps {
  id: string
  title: string
  lines: Line[]
  /** Lines that the axes have room for: those of charts side by side, which then share their ranges; else the lines alone. */
  among?: Line[]
  marks?: Mark[]
  kind: XAxis
  xlog: boolean
  ylog: boolean
  clip: boolean
  zoom: Span | null
  yzoom: Span | null
  dark: boolean
  /** Shared by all charts whose cursors move together. */
  cursor: Signal<Cursor | null>
  onZoom: (xs: Span | null, ys: Span | null) => void
  onReset: () => void
  /** Move the visible range by a share of its width, and scale it by `factor` around a share of it. */
  onMove?: (by: number, factor: number, around: number) => void
  /** The id of a line that is pointed at elsewhere, or empty. */
  emphasis?: Signal<string>
  /** A line was clicked at x, or chosen by Enter. */
  onPick?: (line: string, x: number) => void
  /** The name of x, if it is not the usual one. */
  xname?: string
  /** The names along x, where it counts them. */
  places?: readonly string[] | undefined
  /** Whether the values stand beside the lines always: those at the cursor, else the last ones. */
  aside?: boolean
  /** Called with the drawn model, for downloads. */
  onModel?: (model: Model | null) => void
}

const NO_MARKS: Mark[] = []
const atEnd = (x: number): Pointed => ({ x, reach: [x, x], left: 0, top: 0, line: null, away: new Map() })
const PAPER = { width: 480, height: 300 }
/** Of a legend on paper: its names, and the characters of one in half of the width. */
const [MAX_NAMED, MAX_LABEL] = [30, 32]
/** Around names, which are written in the middle below their place. */
const AIR = 0.35
/** Beside points, as a share of the axis. */
const EDGE = 0.02
/** Keys that move or zoom the visible range. */
const MOVES: Record<string, [by: number, factor: number, around: number]> = {
  PageUp: [-0.25, 1, 0.5],
  PageDown: [0.25, 1, 0.5],
  '+': [0, 1 / 1.5, 0.5],
  '=': [0, 1 / 1.5, 0.5],
  '-': [0, 1.5, 0.5],
}

export function modelOf(props: ChartProps, ink: Ink): Model | string {
  const { lines, among = lines, xlog, ylog, clip, zoom, yzoom } = props
  const extent = extentOf(among.map((line) => line.x), xlog)
  let xs = zoom ?? (extent && props.places ? ([extent[0] - AIR, extent[1] + AIR] as Span) : extent)
  if (!xs || (xlog && xs[1] <= 0)) return xlog && lines.some((line) => line.x.length) ? 'No point has x > 0: a log axis cannot show the others' : 'No points yet'
  if (xlog && xs[0] <= 0) xs = [Math.min(extent?.[0] ?? xs[1] / 1e3, xs[1] / 10), xs[1]]
  if (xs[0] === xs[1]) xs = xlog ? [xs[0] / 2, xs[1] * 2] : [xs[0] - 0.5, xs[1] + 0.5]
  // Points at the edge are seen whole.
  if (!zoom && !xlog && lines.some(({ points }) => points)) xs = [xs[0] - EDGE * (xs[1] - xs[0]), xs[1] + EDGE * (xs[1] - xs[0])]
  const columnsOf = (some: Line[]) => some.flatMap(({ x, y, raw, low, high }) => [y, raw, low, high].flatMap((c) => (c ? [{ x, y: c }] : [])))
  const columns = columnsOf(among.filter(({ second }) => !second))
  const right = lines.filter(({ second }) => second)
  const ys2 = right.length ? (rangeOf(columnsOf(right), xs, { log: ylog, clip }) ?? (ylog ? [0.1, 10] : [0, 1])) as Span : undefined
  let ys = yzoom && !(ylog && yzoom[0] <= 0) ? yzoom : rangeOf(columns, xs, { log: ylog, clip })
  if (!ys && ylog) {
    if (rangeOf(columns, xs, { log: false, clip })) return 'No value above zero: a log axis cannot show these'
  }
  ys ??= ylog ? [0.1, 10] : [0, 1]
  return { lines, marks: props.marks ?? [], kind: props.kind, xlog, ylog, ...(props.xname && { xname: props.xname }), places: props.places, xs, ys, ...(ys2 && { ys2 }), ink }
}

/** The chart for paper, where every chart has a legend of its own. */
function printed(title: string, model: Model): string {
  const named = model.lines.filter(({ earlier, second }) => !earlier && !second)
  return svgOf(title, model.xname || X_LABELS[model.kind], model, named.slice(0, MAX_NAMED).map((line) => ({ ...line, label: line.label.length > MAX_LABEL ? `${line.label.slice(0, MAX_LABEL - 1)}…` : line.label })), PAPER)
}

export function Chart(props: ChartProps) {
  const host = useRef<HTMLDivElement>(null)
  const plot = useRef<Plot | null>(null)
  const latest = useRef(props)
  latest.current = props
  const share = useRef(0.5)
  const root = useContext(Root) ?? undefined
  const [tip, setTip] = useState<Pointed | null>(null)
  /** Where the reader of another chart points at. */
  const [linked, setLinked] = useState<Pointed | null>(null)
  const { lines, among, marks, kind, xlog, ylog, clip, zoom, yzoom, dark, xname, places, aside = false } = props
  const model = useMemo(() => modelOf(latest.current, readInk(root)), [lines, among, marks, kind, xlog, ylog, clip, String(zoom), String(yzoom), dark, xname, places])
  const n_lines = lines.filter(({ earlier }) => !earlier).length
  const shown = typeof model === 'string' ? null : model

  useLayoutEffect(() => {
    const made = new Plot(host.current!, {
      cursor: (pointed) => {
        setTip(pointed)
        latest.current.cursor.value = pointed && { x: pointed.x, chart: latest.current.id }
      },
      zoom: (xs, ys) => latest.current.onZoom(xs, ys),
      reset: () => latest.current.onReset(),
      ...(props.onPick && { pick: (line: string, x: number) => latest.current.onPick!(line, x) }),
      ...(props.onMove && { move: (by: number, factor: number, around: number) => latest.current.onMove!(by, factor, around) }),
    })
    plot.current = made
    // Whole pixels: the browser would blur a canvas of another size.
    const sizes = new ResizeObserver(([entry]) => made.resize(Math.floor(entry!.contentRect.width), Math.floor(entry!.contentRect.height)))
    sizes.observe(host.current!)
    const unlink = props.cursor.subscribe((at) => {
      setLinked(at?.chart === latest.current.id ? null : made.point(at ? at.x : null))
    })
    const unmark = props.emphasis?.subscribe((id) => made.emphasize(latest.current.lines.some((line) => wholeOf(line) === id) ? id : null))
    return () => {
      unmark?.()
      unlink()
      sizes.disconnect()
      made.destroy()
    }
  }, [])

  // In the same frame: an effect after the paint would show the lines one frame later.
  useLayoutEffect(() => {
    if (shown) plot.current!.show(shown)
    else plot.current!.destroy()
    props.onModel?.(shown)
  }, [model])

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey) return
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (step) {
      share.current = Math.min(1, Math.max(0, share.current + step * (event.shiftKey ? 0.1 : 0.01)))
      plot.current!.pointAt(share.current)
    } else if (event.key === '0') props.onReset()
    else if (props.onMove && event.key in MOVES) props.onMove(...MOVES[event.key]!)
    else if (event.key === 'Enter' && tip && props.onPick) props.onPick(tip.line ?? lines[0]!.id, tip.x)
    else if (event.key === 'Escape' && tip) plot.current!.leave()
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  return (
    <div class={aside ? 'chart chart-aside' : 'chart'} onMouseLeave={() => plot.current?.leave()}>
      <div
        class="chart-plot"
        ref={host}
        tabIndex={0}
        role="img"
        aria-label={`${lines[0]?.points ? 'Scatter' : 'Line chart'} of ${props.title}, ${n_lines} ${n_lines === 1 ? 'line' : 'lines'}. Arrow keys read its values${props.onPick ? ', Enter shows all of that moment' : ''}${props.onMove ? '; plus, minus, Page Up and Page Down zoom and move; 0 shows everything' : ''}.`}
        onKeyDown={onKeyDown}
        onBlur={() => plot.current?.leave()}
      />
      {printing.value && shown && <div class="chart-print" dangerouslySetInnerHTML={{ __html: printed(props.title, shown) }} />}
      {typeof model === 'string' && <p class="chart-empty">{model}</p>}
      {shown && (tip || aside) && <Legend tip={tip ?? atEnd(shown.xs[1])} lines={lines} marks={tip ? shown.marks : NO_MARKS} kind={kind} xname={xname} places={places} fixed={aside} />}
      {!tip && !aside && linked && shown && <LinkedValues x={linked.x} lines={lines} />}
    </div>
  )
}
