// A table of any size on a canvas, with frozen headers; only visible cells are drawn.

import { useContext, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { cellText, inSight, reaching, scrollOf, widthOf } from './cells'
import { HEAD, HEIGHT, PAD, paint, type Painted, type Range, type Spot } from './cellsPaint'
import { Root } from './root'
import type { Axis } from './slices'

export interface CellsProps extends Painted {
  label: string
  dtype: string
  /** The largest magnitude: cells are as wide as it needs. */
  max: number
  /** Counts up when the marked cell shall be brought into sight. */
  turns: number
  onMark: (spot: Spot) => void
  onHover: (spot: Spot | null) => void
  onSight: (rows: Range, columns: Range) => void
  onCopy: (rows: Range, columns: Range) => void
}

export function Cells(props: CellsProps) {
  const { rows, columns, dtype, format, marked } = props
  const box = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const latest = useRef(props)
  latest.current = props
  const root = useContext(Root) ?? undefined
  const [view, setView] = useState<[width: number, height: number]>([0, 0])
  const offset = useRef<[x: number, y: number]>([0, 0])
  const anchor = useRef<Spot | null>(null)
  const expected = useRef<[number, number]>([0, 0])
  const frame = useRef(0)

  const character = useCharacter(root)
  const n_columns = columns?.n ?? 1
  const last = (axis: Axis) => String(Math.max(Math.abs(axis.start), Math.abs(axis.start + axis.step * (axis.n - 1)))).length
  const width = Math.max(46, Math.ceil(Math.max(widthOf(dtype, format, props.max), columns ? last(columns) : 5) * character) + 2 * PAD)
  const side = Math.max(40, Math.ceil(last(rows) * character) + 2 * PAD)
  const body: [number, number] = [Math.max(0, view[0] - side), Math.max(0, view[1] - HEAD)]
  const wide = scrollOf(n_columns * width, body[0])
  const tall = scrollOf(rows.n * HEIGHT, body[1])
  const now = { width, side, body, wide, tall, n_columns }
  const geometry = useRef(now)
  geometry.current = now

  const selection = (): { rows: Range; columns: Range } | null => {
    const at = latest.current.marked
    if (!at) return null
    const from = anchor.current ?? at
    const range = (i: 0 | 1): Range => [Math.min(from[i], at[i]), Math.max(from[i], at[i]) + 1]
    return { rows: range(0), columns: range(1) }
  }

  const draw = () => {
    frame.current = 0
    if (!canvas.current || !box.current) return
    paint(canvas.current, box.current, latest.current, geometry.current, offset.current, selection())
  }
  const redraw = () => void (frame.current ||= requestAnimationFrame(draw))

  const moveTo = (x: number, y: number) => {
    const { body, wide, tall, width, n_columns } = geometry.current
    const clamp = (value: number, real: number, room: number) => Math.max(0, Math.min(value, real - room))
    offset.current = [clamp(x, n_columns * width, body[0]), clamp(y, latest.current.rows.n * HEIGHT, body[1])]
    expected.current = [offset.current[0] / wide.ratio, offset.current[1] / tall.ratio]
    box.current!.scrollTo(...expected.current)
    look()
  }

  const look = () => {
    const { body, width, n_columns } = geometry.current
    latest.current.onSight(inSight(offset.current[1], body[1], HEIGHT, latest.current.rows.n), inSight(offset.current[0], body[0], width, n_columns))
    redraw()
  }

  useLayoutEffect(() => {
    const element = box.current!
    const sizes = new ResizeObserver(() => setView([element.clientWidth, element.clientHeight]))
    sizes.observe(element)
    const onScroll = () => {
      const { wide, tall } = geometry.current
      const [x, y] = [element.scrollLeft, element.scrollTop]
      const near = Math.abs(x - expected.current[0]) < 1 && Math.abs(y - expected.current[1]) < 1
      if (near && (wide.ratio > 1 || tall.ratio > 1)) return
      expected.current = [x, y]
      offset.current = [x * wide.ratio, y * tall.ratio]
      look()
    }
    const onWheel = (event: WheelEvent) => {
      const { wide, tall } = geometry.current
      if (event.ctrlKey || (wide.ratio === 1 && tall.ratio === 1)) return
      // A pixel of the scroll bar stands for many: the wheel moves the table itself.
      event.preventDefault()
      const unit = event.deltaMode === 1 ? HEIGHT : event.deltaMode === 2 ? geometry.current.body[1] : 1
      const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY]
      moveTo(offset.current[0] + dx * unit, offset.current[1] + dy * unit)
    }
    element.addEventListener('scroll', onScroll, { passive: true })
    element.addEventListener('wheel', onWheel, { passive: false })
    return () => {
      sizes.disconnect()
      element.removeEventListener('scroll', onScroll)
      element.removeEventListener('wheel', onWheel)
      cancelAnimationFrame(frame.current)
    }
  }, [])

  useLayoutEffect(() => {
    if (view[0]) moveTo(...offset.current)
  }, [view, width, side, rows.n, n_columns])
  useEffect(redraw)
  useEffect(() => {
    if (!marked || !view[0]) return
    const { body, width } = geometry.current
    const centred = (at: number, room: number, size: number, i: number) => (reaching(at, room, size, i) === at ? at : i * size - room / 2 + size / 2)
    anchor.current = null
    moveTo(centred(offset.current[0], body[0], width, marked[1]), centred(offset.current[1], body[1], HEIGHT, marked[0]))
  }, [props.turns, view[0] > 0])

  const spotAt = (event: MouseEvent): Spot | null => {
    const { left, top } = canvas.current!.getBoundingClientRect()
    const [x, y] = [event.clientX - left - side, event.clientY - top - HEAD]
    const spot: Spot = [Math.floor((y + offset.current[1]) / HEIGHT), Math.floor((x + offset.current[0]) / width)]
    return x >= 0 && y >= 0 && x < body[0] && y < body[1] && spot[0] < rows.n && spot[1] < n_columns ? spot : null
  }
  const mark = (spot: Spot, extend: boolean) => {
    if (extend) anchor.current ??= latest.current.marked ?? spot
    else anchor.current = null
    props.onMark(spot)
    redraw()
  }
  const dragging = useRef(false)

  const onKeyDown = (event: KeyboardEvent) => {
    if (rows.n === 0 || n_columns === 0) return
    const at = marked ?? [0, 0]
    const page = Math.max(1, Math.floor(body[1] / HEIGHT) - 1)
    const all = event.ctrlKey || event.metaKey
    const to = ({
      ArrowDown: [at[0] + 1, at[1]], ArrowUp: [at[0] - 1, at[1]], ArrowRight: [at[0], at[1] + 1], ArrowLeft: [at[0], at[1] - 1],
      PageDown: [at[0] + page, at[1]], PageUp: [at[0] - page, at[1]],
      Home: [all ? 0 : at[0], 0], End: [all ? rows.n - 1 : at[0], n_columns - 1],
    } as Record<string, Spot>)[event.key]
    if (to) {
      const spot: Spot = [Math.max(0, Math.min(rows.n - 1, to[0])), Math.max(0, Math.min(n_columns - 1, to[1]))]
      mark(spot, event.shiftKey)
      moveTo(reaching(offset.current[0], body[0], width, spot[1]), reaching(offset.current[1], body[1], HEIGHT, spot[0]))
    } else if (all && event.key === 'c') {
      const chosen = selection()
      if (chosen) props.onCopy(chosen.rows, chosen.columns)
    } else if (all && event.key === 'a') {
      anchor.current = [0, 0]
      props.onMark([rows.n - 1, n_columns - 1])
    } else return
    event.preventDefault()
    event.stopPropagation()
  }

  const value = marked && props.cell(...marked)
  return (
    <div
      ref={box}
      class="cells"
      role="grid"
      aria-label={props.label}
      aria-rowcount={rows.n}
      aria-colcount={n_columns}
      aria-multiselectable
      aria-activedescendant={marked ? 'cells-marked' : undefined}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        const spot = event.button === 0 ? spotAt(event) : null
        if (!spot) return
        dragging.current = event.pointerType === 'mouse'
        mark(spot, event.shiftKey)
      }}
      onPointerMove={(event) => {
        const spot = spotAt(event)
        props.onHover(spot)
        if (spot && dragging.current && event.buttons === 1 && String(spot) !== String(latest.current.marked)) mark(spot, true)
      }}
      onPointerUp={() => (dragging.current = false)}
      onPointerLeave={() => props.onHover(null)}
    >
      <div class="cells-space" role="presentation" style={{ width: `${side + wide.length}px`, height: `${HEAD + tall.length}px` }}>
        <canvas ref={canvas} class="cells-canvas" aria-hidden="true" style={{ width: `${view[0]}px`, height: `${view[1]}px` }} />
      </div>
      <div class="unseen" role="row" aria-rowindex={marked ? marked[0] + 1 : undefined}>
        <span id="cells-marked" role="gridcell" aria-colindex={marked ? marked[1] + 1 : undefined} aria-selected={Boolean(marked)}>
          {value === undefined || value === null ? 'no cell' : `row ${rows.start + rows.step * marked![0]}${columns ? `, column ${columns.start + columns.step * marked![1]}` : ''}: ${cellText(value, format, dtype)}`}
        </span>
      </div>
    </div>
  )
}

/** How wide a character of the table's font is. */
function useCharacter(root: Element = document.documentElement): number {
  const [width] = useState(() => {
    const ctx = document.createElement('canvas').getContext('2d')!
    ctx.font = `12px ${getComputedStyle(root).getPropertyValue('--mono').trim()}`
    return ctx.measureText('0000000000').width / 10
  })
  return width
}
