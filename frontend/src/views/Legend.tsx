// The values at the cursor, largest first, and what was done there.

import { nearest } from './bounds'
import { pointAt, wholeOf, type Line, type Mark } from './draw'
import type { Pointed, XAxis } from './plot'
import { dateTime, duration, number } from './format'
import type { Span } from './span'
import { Swatch } from './Swatch'

const MAX_ROWS = 12
const MAX_LINKED_ROWS = 4
const MAX_ODD = 4
/** Of groups, whose names are long and have a line of their own. */
const MAX_GROUP_ROWS = 4
const [MAX_WIDTH, MAX_LINKED_WIDTH] = [320, 200]

interface LegendProps {
  tip: Pointed
  lines: readonly Line[]
  marks: readonly Mark[]
  kind: XAxis
  /** The name of x, if it is not the usual one. */
  xname?: string
  /** The names along x, where it counts them. */
  places?: readonly string[] | undefined
  /** Whether the reader points at another chart: fewer values, and only they. */
  linked?: boolean
}

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

/** NaN and infinities within reach of the cursor: they are the news, and a mark is wider than a step. */
export function oddities(lines: readonly Line[], [low, high]: Span): { line: Line; x: number; y: number }[] {
  return lines.flatMap((line) => {
    const values = line.raw ?? line.y
    const found = []
    for (let i = line.x.length ? nearest(line.x, low) : 0; i < line.x.length && line.x[i]! <= high; i++) {
      if (line.x[i]! >= low && !Number.isFinite(values[i]!)) found.push({ line, x: line.x[i]!, y: values[i]! })
    }
    return found
  })
}

/** Of many lines the first, and the one that the reader points at. */
function inSight(rows: Reading[], id: string | null, most: number): Reading[] {
  const near = rows.findIndex(({ line }) => wholeOf(line) === id)
  return near < most ? rows.slice(0, most) : [...rows.slice(0, most - 1), rows[near]!]
}

/** How long the words are that all names begin with: where there is little room, what tells them apart is shown. */
export function sharedWords(names: readonly string[]): number {
  const [first = ''] = names
  let n = 0
  for (const { index } of first.matchAll(/ /g)) if (names.length > 1 && names.every((name) => name.startsWith(first.slice(0, index + 1)))) n = index + 1
  return n
}

export function xText(kind: LegendProps['kind'], x: number): string {
  if (kind === 'wall') return dateTime(x)
  if (kind === 'relative') return duration(x)
  return kind === 'step' ? `step ${number(Math.round(x), 12)}` : number(x, 6)
}

export function Legend({ tip, lines, marks, kind, xname, places, linked = false }: LegendProps) {
  const all = readings(lines, tip.x, (tip.reach[1] - tip.reach[0]) / 2)
  const grouped = !linked && lines.some(({ n }) => n)
  const rows = inSight(all, tip.line, linked ? MAX_LINKED_ROWS : grouped ? MAX_GROUP_ROWS : MAX_ROWS)
  const shared = linked ? sharedWords(rows.map(({ line }) => line.label)) : 0
  const done = marks.filter(({ x }) => x >= tip.reach[0] && x <= tip.reach[1])
  const odd = linked ? [] : oddities(lines, tip.reach).slice(0, MAX_ODD)
  const first = lines.length === 1 && lines[0]!.x.length ? lines[0]!.x[nearest(lines[0]!.x, tip.x)]! : tip.x
  const right = tip.left > 170
  const most = linked ? MAX_LINKED_WIDTH : MAX_WIDTH
  // Long names are cut off within the chart, not by its edge.
  const style = right
    ? { right: `calc(100% - ${tip.left - 12}px)`, maxWidth: `${Math.min(most, tip.left - 16)}px` }
    : { left: `${tip.left + 14}px`, maxWidth: `min(${most}px, calc(100% - ${tip.left + 18}px))` }
  return (
    <div class={linked ? 'legend legend-linked' : 'legend'} style={style} role="group" aria-label="Values at the cursor" aria-live={linked ? undefined : 'polite'}>
      {!linked && <div class="legend-x">{places?.[Math.round(first)] ?? (xname ? `${xname} ${number(first, 6)}` : xText(kind, first))}</div>}
      {odd.map(({ line, x, y }) => (
        <div class="legend-row legend-tall" key={`${line.id} ${x}`}>
          <Swatch style={line.style} />
          <span class="legend-name">{line.label}</span>
          <span class="legend-value">{number(y)}</span>
          <span class="legend-raw">{places || xname ? '' : xText(kind, x)}</span>
        </div>
      ))}
      {rows.map(({ line, y, raw, digits, spread, n, until }) => (
        <div class={`legend-row ${grouped ? 'legend-tall' : ''} ${wholeOf(line) === tip.line ? 'is-near' : ''} ${until === null ? '' : 'is-over'}`} key={line.id}>
          <Swatch style={line.style} />
          <span class="legend-name">{line.label.slice(shared)}</span>
          <span class="legend-value">{raw === null && digits !== null ? digits.replace('-', '−') : number(y, 5)}</span>
          {raw !== null && !linked && <span class="legend-raw">{digits?.replace('-', '−') ?? number(raw, 4)}</span>}
          {n !== null && (!linked || n < (line.of ?? n)) && <span class="legend-raw">{line.of && n < line.of ? `${n} of ${line.of} runs` : `n = ${n}`}</span>}
          {until !== null && <span class="legend-raw">until {xname ? number(until, 6) : xText(kind, until)}</span>}
          {spread && !linked && <span class="legend-raw">{`${number(spread[0], 3)} … ${number(spread[1], 3)}`}</span>}
        </div>
      ))}
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
