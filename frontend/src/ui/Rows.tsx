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
  const [sight, setSight] = useState<[number, number]>([0, 1200])
  const offsets = useMemo(() => offsetsOf(heights), [heights])

  useLayoutEffect(() => {
    const { current } = box
    if (!current) return
    const look = () => setSight(([top, height]) => (top === current.scrollTop && height === current.clientHeight ? [top, height] : [current.scrollTop, current.clientHeight]))
    const sizes = new ResizeObserver(look)
    sizes.observe(current)
    current.addEventListener('scroll', look, { passive: true })
    look()
    return () => {
      sizes.disconnect()
      current.removeEventListener('scroll', look)
    }
  }, [])

  const [from, end] = printing.value ? [0, heights.length] : rowsBetween(offsets, sight[0] - reach, sight[0] + sight[1] + reach)
  const items = []
  for (let i = from; i < end; i++) {
    items.push(
      <div key={keyOf(i)} class="rows-row" role={role === 'grid' ? 'presentation' : 'listitem'} style={printing.value ? undefined : { transform: `translateY(${offsets[i]}px)`, height: `${heights[i]}px` }}>
        {row(i)}
      </div>,
    )
  }
  return (
    <div ref={box} class={`rows ${name}`} role={role} aria-label={label} tabIndex={-1}>
      {header}
      <div class="rows-all" style={printing.value ? undefined : { height: `${offsets[heights.length]}px` }} role="presentation">
        {items}
      </div>
    </div>
  )
}
