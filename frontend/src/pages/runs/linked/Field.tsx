// The ground of a linked view: painted runs that are pointed at, brushed, and walked through with the keyboard.

import type { JSX } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { filtered, labelOf } from '../../../data/runs'
import { select, selected, selectedKeys, selectThese } from '../../../data/selection'
import { dark } from '../../../state/theme'
import { usePainted, type Sheet } from '../../../views/paint'
import { pointed } from './state'

export type Point = [x: number, y: number]
export interface Size {
  width: number
  height: number
}

interface FieldProps {
  label: string
  paint: (sheet: Sheet) => void
  /** What the painting depends on. */
  changes: unknown[]
  /** The run nearest to a place, by its number; -1 without one. */
  near: (at: Point, size: Size) => number
  /** Select what lies between two corners; a click has one corner twice, and returns whether it meant something. */
  brush: (from: Point, to: Point, size: Size, too: boolean) => boolean
  /** The next run for an arrow key. */
  walk: (key: string, from: number) => number
  /** What is said of a run, after its name. */
  tell: (i: number) => string
  /** What is said while no run is pointed at. */
  hint: string
  /** The run that is pointed at. */
  mark: (i: number, size: Size) => JSX.Element
  /** What stands over the canvas. */
  over?: ((size: Size) => JSX.Element[]) | undefined
}

/** Pixels after which a press is a drag. */
const DRAG = 4

export function Field({ label, paint, changes, near, brush, walk, tell, hint, mark, over }: FieldProps) {
  const runs = filtered.value
  const [drag, setDrag] = useState<{ from: Point; to: Point } | null>(null)
  const box = useRef<HTMLDivElement>(null)
  const canvas = usePainted(paint, [...changes, selected.value, dark.value])
  const size = { width: canvas.current?.clientWidth ?? 0, height: canvas.current?.clientHeight ?? 0 }
  const at = runs.findIndex(({ key }) => key === pointed.value)
  const placeOf = ({ clientX, clientY }: MouseEvent): Point => {
    const { left, top } = box.current!.getBoundingClientRect()
    return [clientX - left, clientY - top]
  }
  const onPointerMove = (event: PointerEvent) => {
    const to = placeOf(event)
    if (drag) setDrag({ ...drag, to })
    else pointed.value = runs[near(to, size)]?.key ?? ''
  }
  const onPointerUp = (event: PointerEvent) => {
    if (!drag) return
    const to = placeOf(event)
    const moved = Math.hypot(to[0] - drag.from[0], to[1] - drag.from[1]) > DRAG
    setDrag(null)
    if (brush(drag.from, moved ? to : drag.from, size, event.shiftKey)) return
    const run = runs[near(to, size)]
    if (!run) selectThese([])
    else if (event.shiftKey) select(run.key, !selectedKeys.peek().has(run.key), false)
    else selectThese([run.key])
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const next = event.key.startsWith('Arrow') ? walk(event.key, at) : -1
    if (next >= 0) {
      if (event.shiftKey) selectThese([runs[at]?.key, runs[next]!.key].filter((key) => key !== undefined), true)
      pointed.value = runs[next]!.key
    } else if ((event.key === ' ' || event.key === 'Enter') && at >= 0) select(runs[at]!.key, !selectedKeys.peek().has(runs[at]!.key), false)
    else if (event.key === 'Escape' && selectedKeys.peek().size) selectThese([])
    else if (!event.key.startsWith('Arrow')) return
    event.preventDefault()
  }
  return (
    <>
      <div
        ref={box}
        class="field"
        role="application"
        tabIndex={0}
        aria-label={`${label}. Arrow keys go from run to run, Space selects, with Shift the runs on the way; Escape selects none`}
        onPointerDown={(event) => event.button === 0 && (box.current!.setPointerCapture(event.pointerId), setDrag({ from: placeOf(event), to: placeOf(event) }))}
        onPointerMove={onPointerMove}
        onPointerUp={onPointerUp}
        onPointerCancel={() => setDrag(null)}
        onPointerLeave={() => (pointed.value = '')}
        onBlur={() => (pointed.value = '')}
        onKeyDown={onKeyDown}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <svg aria-hidden="true">
          {over?.(size)}
          {drag && <rect class="field-brush" x={Math.min(drag.from[0], drag.to[0])} y={Math.min(drag.from[1], drag.to[1])} width={Math.abs(drag.to[0] - drag.from[0])} height={Math.abs(drag.to[1] - drag.from[1])} />}
          {at >= 0 && mark(at, size)}
        </svg>
      </div>
      <p class="field-told" aria-live="polite">
        {at >= 0 ? (
          <>
            <b>{labelOf(runs[at]!.key)}</b> {tell(at)}
          </>
        ) : (
          <span class="muted">{hint}</span>
        )}
      </p>
    </>
  )
}
