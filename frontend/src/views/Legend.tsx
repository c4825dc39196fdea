// The values at the cursor: a table beside the chart, so that it hides nothing of what is read.

import { useLayoutEffect, useRef } from 'preact/hooks'
import { nearest } from './bounds'
import { pointAt, wholeOf, type Line, type Mark } from './draw'
import type { Pointed, XAxis } from './plot'
import { dateTime, duration, number } from './format'
import type { Span } from './span'
import { Swatch } from './Swatch'

const [MAX_ROWS, MAX_FIXED] = [12, 40]
/** Of a chart whose cursor follows that of another. */
const MAX_LINKED = 4
const MAX_ODD = 4
const GAP = 8

export interface Reading {
  line: Line
  y: number
  raw: number | null
  /** The digits of an integer that is drawn rounded: of `raw`, if there is one, else of `y`. */
  digits: string | null
  /** The ends of the band, where there is one. */
  spread: [number, number] | null
  /** How many lines a mean is of. */
  n: number | null
  /** Where the line ends, if that is before the cursor. */
  until: number | null
}

/** The value of each line at x, largest first, NaN last, and behind these the lines that ended before, give or take some x. */
export function readings(lines: readonly Line[], x: number, slack = 0): Reading[] {
  const found = lines.flatMap((line) => {
    const i = pointAt(line, x)
    if (i < 0) return []
    const spread = line.low && line.high && line.low[i] !== line.high[i] ? ([line.low[i]!, line.high[i]!] as [number, number]) : null
    const end = line.x[line.x.length - 1]!
    return [{ line, y: line.y[i]!, raw: line.raw ? line.raw[i]! : null, digits: line.digits?.get(line.x[i]!) ?? null, spread, n: line.n ? line.n[i]! : null, until: x - slack > end && lines.length > 1 ? end : null }]
  })
  const over = ({ until }: Reading) => Number(until !== null)
  return found.sort((a, b) => over(a) - over(b) || (Number.isNaN(a.y) ? 1 : Number.isNaN(b.y) ? -1 : b.y - a.y))
}

/** Of readings in the order of their values those whose lines pass nearest to the pointer, nearest first; of many also the largest and the smallest. */
export function nearestFirst(rows: readonly Reading[], away: ReadonlyMap<string, number>, most: number): Reading[] {
  const of = ({ line }: Reading) => away.get(wholeOf(line)) ?? Infinity
  const all = [...rows].sort((a, b) => Number(a.until !== null) - Number(b.until !== null) || (of(a) === of(b) ? 0 : of(a) - of(b)))
  const now = rows.filter(({ y, until }) => until === null && !Number.isNaN(y))
  const ends = new Set(now.length ? [now[0]!, now[now.length - 1]!] : [])
  const near = new Set(all.filter((row) => !ends.has(row)).slice(0, most - ends.size))
  return all.filter((row) => near.has(row) || ends.has(row))
}

/** Of each line the NaN or infinity nearest to x within reach of the cursor: it is the news, and a mark is wider than a step. */
export function oddities(lines: readonly Line[], at: number, [low, high]: Span): { line: Line; x: number; y: number }[] {
  return lines.flatMap((line) => {
    const values = line.raw ?? line.y
    let best = -1
    for (let i = line.x.length ? nearest(line.x, low) : 0; i < line.x.length && line.x[i]! <= high; i++) {
      if (line.x[i]! < low || Number.isFinite(values[i]!)) continue
      if (best < 0 || Math.abs(line.x[i]! - at) < Math.abs(line.x[best]! - at)) best = i
    }
    return best < 0 ? [] : [{ line, x: line.x[best]!, y: values[best]! }]
  })
}

/** Names without what all of them have: words, and of single words the parts at their beginning; of values the keys, once. */
export function differences(names: readonly string[]): { names: string[]; keys: string } {
  if (names.length < 2) return { names: [...names], keys: '' }
  const words = names.map((name) => name.split(' '))
  const left = words.map((all) => all.filter((word) => !words.every((others) => others.includes(word))))
  if (left.some((all) => !all.length)) return { names: left.map((all, i) => all.join(' ') || names[i]!), keys: '' }
  // Behind the values of a group is the number of its runs.
  const isCount = (word: string) => /^\(\d+\)$/.test(word)
  const keysOf = (all: readonly string[]) => all.filter((word) => !isCount(word)).map((word) => (word.includes('=') ? word.split('=')[0] : '')).join(' ')
  const keys = keysOf(left[0]!)
  if (!keys.split(' ').includes('') && left.every((all) => keysOf(all) === keys)) return { names: left.map((all) => all.map((word) => word.slice(word.indexOf('=') + 1)).join(' ')), keys }
  const short = left.map((all) => all.join(' '))
  const first = short[0]!
  let n = 0
  // Not within a number, or a value.
  for (const { index } of first.split('=')[0]!.matchAll(/[-_/](?![\d.])/g)) if (short.every((name) => name.length > index + 1 && name.startsWith(first.slice(0, index + 1)))) n = index + 1
  return { names: n ? short.map((name) => `…${name.slice(n)}`) : short, keys: '' }
}

export function xText(kind: LegendProps['kind'], x: number): string {
  if (kind === 'wall') return dateTime(x)
  if (kind === 'relative') return duration(x)
  return kind === 'step' ? `step ${number(Math.round(x), 12)}` : number(x, 6)
}

interface Box {
  left: number
  top: number
  right: number
  bottom: number
}

/** Where a table stands: beside the chart, below or above it; where nothing of that has room, within it, away from the pointer. */
export function besides(chart: Box, size: { width: number; height: number }, view: { width: number; height: number }, pointer: number): { left: number; top: number } {
  const within = (at: number, most: number) => Math.max(GAP, Math.min(at, most - GAP))
  const top = within(chart.top, view.height - size.height)
  if (chart.right + 2 * GAP + size.width <= view.width) return { left: chart.right + GAP, top }
  if (chart.left - 2 * GAP - size.width >= 0) return { left: chart.left - GAP - size.width, top }
  const left = within(pointer - size.width / 2, view.width - size.width)
  if (chart.bottom + 2 * GAP + size.height <= view.height) return { left, top: chart.bottom + GAP }
  if (chart.top - 2 * GAP - size.height >= 0) return { left, top: chart.top - GAP - size.height }
  const isRight = pointer > (chart.left + chart.right) / 2
  return { left: isRight ? chart.left + GAP : chart.right - GAP - size.width, top }
}

interface LegendProps {
  tip: Pointed
  lines: readonly Line[]
  marks: readonly Mark[]
  kind: XAxis
  /** The name of x, if it is not the usual one. */
  xname?: string
  /** The names along x, where it counts them. */
  places?: readonly string[] | undefined
  /** Whether it has a place of its own in the chart; else it is shown over what is beside. */
  fixed?: boolean
}

export function Legend({ tip, lines, marks, kind, xname, places, fixed = false }: LegendProps) {
  const box = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    if (!fixed) box.current!.showPopover?.() // above all else, also where a list that scrolls would cut it off
  }, [])
  useLayoutEffect(() => {
    if (fixed) return
    const { style, offsetWidth, offsetHeight, parentElement } = box.current!
    const chart = parentElement!.getBoundingClientRect()
    const card = (parentElement!.closest('.panel') ?? parentElement!).getBoundingClientRect()
    const { left, top } = besides(card, { width: offsetWidth, height: offsetHeight }, { width: innerWidth, height: innerHeight }, chart.left + tip.left)
    style.left = `${left}px`
    style.top = `${top}px`
  })
  const all = readings(lines, tip.x, (tip.reach[1] - tip.reach[0]) / 2)
  const rows = nearestFirst(all, tip.away, fixed ? MAX_FIXED : MAX_ROWS)
  const odd = oddities(lines, tip.x, tip.reach).slice(0, MAX_ODD)
  const { names, keys } = differences([...odd, ...rows].map(({ line }) => line.label))
  const done = marks.filter(({ x }) => x >= tip.reach[0] && x <= tip.reach[1])
  const first = lines.length === 1 && lines[0]!.x.length ? lines[0]!.x[nearest(lines[0]!.x, tip.x)]! : tip.x
  return (
    <div ref={box} class={fixed ? 'legend legend-fixed' : 'legend'} {...(!fixed && { popover: 'manual' })} role="group" aria-label="Values at the cursor" aria-live="polite">
      <div class="legend-x">
        {places?.[Math.round(first)] ?? (xname ? `${xname} ${number(first, 6)}` : xText(kind, first))}
        {keys && <span> · {keys}</span>}
      </div>
      <div class="legend-rows">
        {odd.map(({ line, x, y }, i) => (
          <div class="legend-row" key={`${line.id} odd`}>
            <Swatch style={line.style} />
            <span class="legend-name">{names[i]}</span>
            <span class="legend-value">{number(y)}</span>
            <span class="legend-raw">{places || xname ? '' : xText(kind, x)}</span>
          </div>
        ))}
        {rows.map(({ line, y, raw, digits, spread, n, until }, i) => (
          <div class={`legend-row ${wholeOf(line) === tip.line ? 'is-near' : ''} ${until === null ? '' : 'is-over'}`} key={line.id}>
            <Swatch style={line.style} />
            <span class="legend-name">{names[odd.length + i]}</span>
            <span class="legend-value">{raw === null && digits !== null ? digits.replace('-', '−') : number(y, 5)}</span>
            <span class="legend-raw">
              {[
                raw !== null && (digits?.replace('-', '−') ?? number(raw, 4)),
                n !== null && (line.of && n < line.of ? `${n} of ${line.of} runs` : `n = ${n}`),
                until !== null && `until ${xname ? number(until, 6) : xText(kind, until)}`,
                spread && `${number(spread[0], 3)} … ${number(spread[1], 3)}`,
              ]
                .filter(Boolean)
                .join(' · ')}
            </span>
          </div>
        ))}
      </div>
      {all.length > rows.length && <div class="legend-more">and {all.length - rows.length} more</div>}
      {done.map(({ label, color }) => (
        <div class="legend-mark" key={label}>
          <svg width="16" height="8" aria-hidden="true">
            <path d="M4 0h8l-4 7z" fill={color ?? 'currentColor'} />
          </svg>
          {label}
        </div>
      ))}
    </div>
  )
}

/** The values where the reader of another chart points at: in one row above the chart; the colours say which line each is of. */
export function LinkedValues({ x, lines }: { x: number; lines: readonly Line[] }) {
  const all = readings(lines, x).filter(({ until }) => until === null)
  return (
    <div class="linked-values" aria-label="Values where another chart is read" role="group">
      {all.slice(0, MAX_LINKED).map(({ line, y }) => (
        <span key={line.id} title={line.label}>
          <Swatch style={line.style} /> {number(y, 4)}
        </span>
      ))}
      {all.length > MAX_LINKED && <span>+ {all.length - MAX_LINKED}</span>}
    </div>
  )
}
