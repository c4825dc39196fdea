import type { ComponentChildren, JSX } from 'preact'
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { printing } from '../views/printing'
import { offsetsOf, rowsBetween } from './virtual'

interface RowsProps {
  heights: number[]
  /** A stable name for a row, so that it survives when others come and go. */
  keyOf: (index: number) => string
  row: (index: number) => ComponentChildren
  label: string
  role?: JSX.AriaRole
  class?: string
  /** Pixels beyond the edges in which rows exist already. */
  reach?: number
  header?: ComponentChildren
}

/** A scrolling box with only the rows in sight; on paper, all rows one after another. */
export function Rows({ heights, keyOf, row, label, role = 'list', class: name = '', reach = 200, header }: RowsProps) {
  const box = useRef<HTMLDivElement>(null)
  const content = useRef<HTMLDivElement>(null)
  const sight = useRef<[top: number, height: number]>([0, 1200])
  const offsets = useMemo(() => offsetsOf(heights), [heights])
  const inReach = () => {
    const [top, height] = sight.current
    return rowsBetween(offsets, top - reach, top + height + reach)
  }
  const latest = useRef(inReach)
  latest.current = inReach
  const there = useRef('') // the rows that exist
  const [, again] = useState(0)

  useLayoutEffect(() => {
    const { current } = box
    if (!current) return
    const look = () => {
      sight.current = [current.scrollTop - content.current!.offsetTop, current.clientHeight]
      if (latest.current().join() !== there.current) again((n) => n + 1)
    }
    const sizes = new ResizeObserver(look)
    sizes.observe(current)
    const head = content.current!.previousElementSibling?.firstElementChild // it may grow, and then the rows move
    if (head) sizes.observe(head)
    current.addEventListener('scroll', look, { passive: true })
    look()
    return () => {
      sizes.disconnect()
      current.removeEventListener('scroll', look)
    }
  }, [Boolean(header)])

  const paper = printing.value
  // While the box scrolls, rows that stay are not rendered again.
  const made = useMemo(() => new Map<number, JSX.Element>(), [row, paper])
  const [from, end] = paper ? [0, heights.length] : inReach()
  there.current = `${from},${end}`
  for (const i of made.keys()) if (i < from || i >= end) made.delete(i)
  for (let i = from; i < end; i++) {
    if (made.has(i)) continue
    made.set(
      i,
      <div key={keyOf(i)} class="rows-row" role={role === 'grid' ? 'presentation' : 'listitem'} style={paper ? undefined : { transform: `translateY(${offsets[i]}px)`, height: `${heights[i]}px` }}>
        <Row i={i} row={row} />
      </div>,
    )
  }
  const items = Array.from({ length: end - from }, (_, n) => made.get(from + n))
  return (
    <div ref={box} class={`rows ${name}`} role={role} aria-label={label} tabIndex={-1}>
      {header && (
        <div class="rows-head" role={role === 'list' ? 'listitem' : undefined}>
          {header}
        </div>
      )}
      <div ref={content} class="rows-all" style={paper ? undefined : { height: `${offsets[heights.length]}px` }} role="presentation">
        {items}
      </div>
    </div>
  )
}

/** A row by itself, so that a signal that it reads renders it alone. */
function Row({ i, row }: { i: number; row: RowsProps['row'] }) {
  return <>{row(i)}</>
}
