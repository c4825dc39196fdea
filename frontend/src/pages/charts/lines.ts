// The lines of one chart: wants their series, and makes lines of those that have come.

import { useMemo, useRef } from 'preact/hooks'
import type { Entry } from '../../data/scalars'
import { baseline, labelOf } from '../../data/runs'
import { runsWith } from '../../data/tags'
import type { Scalars, ScalarsRequest } from '../../data/types'
import { at } from '../../state/state'
import { extentOf } from '../../views/bounds'
import type { Line, Mark } from '../../views/draw'
import { count, exact } from '../../views/format'
import { styleOf } from '../../views/palette'
import { FAINT } from '../../views/passes'
import type { Span } from '../../views/span'
import type { Drawing } from './cards'
import { drawn } from './drawn'
import { minus } from './minus'
import { pointsFor, useSeries } from './series'
import { linesOf as linesOfOne, restartsOf, wantedOf, type Wanted } from './wanted'

export interface Lines {
  lines: Line[]
  /** Those of all facets: charts side by side share their ranges. */
  among: Line[]
  /** Where the runs began again. */
  restarts: Mark[]
  notes: string
  error: string | null
  loading: boolean
  requests: ScalarsRequest[]
  runs: ReadonlySet<string>
  /** When a run was where a line is at x: the run of the line, or the first one of a group. */
  momentAt: (line: string, x: number) => { run: string; wall: number } | null
}

/** Points of a scatter, for each run. */
const POINTS = 2_000

/** The margin to fetch on both sides of the visible range, so that lines reach the edges and smoothing can start. */
const MARGIN = 0.2

const widened = ([low, high]: Span): { from: number; to: number } => ({ from: low - MARGIN * (high - low), to: high + MARGIN * (high - low) })

const keyOf = ({ run, tag }: ScalarsRequest): string => JSON.stringify([run, tag])

/** The lines of a chart, or of one of the facets that it is divided into. */
export function useLines(tags: readonly string[], facet: string, large: boolean, { x, zoom, smooth, points: asPoints }: Drawing): Lines {
  const all = wantedOf(tags, drawn.value, runsWith)
  const wanted = facet ? all.filter((one) => one.facet === facet) : all
  const others = facet ? all.filter((one) => one.facet !== facet) : []
  // Runs are at the same place of their trainings at a step, not at a time of day.
  const less = at.less.value && x !== 'wall' && !asPoints ? baseline.value : null
  const bases = less ? tags.map((tag): Wanted => ({ id: less.key, label: '', style: styleOf(0), runs: [less.key], tag })) : []
  const countOf = (some: Wanted[]) => some.reduce((sum, one) => sum + one.runs.length, 0)
  const [n, n_all] = [countOf(wanted), countOf(all)]
  // Of all facets, so that each of them asks for the same points of a run.
  const points = asPoints ? POINTS : pointsFor(n_all, large)
  const requests = [...wanted, ...others, ...bases].flatMap(({ tag, runs }) =>
    runs.map((run): ScalarsRequest => ({ run, tag, x, points: zoom ? Math.ceil(points * (1 + 2 * MARGIN)) : points, ...(zoom && widened(zoom)) })),
  )
  const entries = useSeries(requests)
  // While a closer look is on its way, what was there before stays.
  const before = useRef(new Map<string, Scalars>())
  const kind = useRef(x)
  if (kind.current !== x) {
    kind.current = x
    before.current.clear()
  }
  const data = entries.map((entry) => {
    const now = entry.data.value ?? before.current.get(keyOf(entry.request)) ?? null
    if (now) before.current.set(keyOf(entry.request), now)
    return now
  })
  const [low, high] = zoom ?? extentOf(data.flatMap((series) => (series ? series.parts.map(({ start, end }) => series.x.subarray(start, end)) : [])), false) ?? [0, 0]
  const options = { weight: smooth, extent: high - low, byPoint: at.smoothby.value === 'point', band: at.band.value, points: asPoints }
  const known = [...data, drawn.value, less?.key, ...Object.values(options), entries]
  const lines = useMemo(() => linesOf(wanted, less && bases, entries, data, options), known)
  const among = useMemo(() => (others.length ? [...lines, ...linesOf(others, less && bases, entries, data, options)] : lines), known)
  const mine = data.slice(0, n)
  const restarts = useMemo(() => restartsOf(mine.filter((series) => series !== null)), [...data])
  const missing = lines.length ? entries.slice(0, n).filter((entry) => entry.error.value).length : 0
  return {
    lines,
    among,
    restarts,
    notes: [less && (entries.slice(n_all).some((entry) => entry.error.value) ? `not in ${labelOf(less.key)}` : `minus ${labelOf(less.key)}`), missing > 0 && `not in ${missing} of ${n} runs`, notesOf(mine)].filter(Boolean).join(' · '),
    error: furthest(entries.slice(0, n).flatMap((entry) => entry.error.value ?? [])),
    loading: entries.slice(0, n).some((entry) => !entry.data.value && !entry.error.value),
    requests: entries.slice(0, n).map(({ request }) => request),
    runs: new Set(wanted.flatMap((one) => one.runs)),
    momentAt: (line, x) => {
      const one = wanted.find(({ id }) => id === line)
      const series = one && data[entries.findIndex(({ request }) => request.run === one.runs[0] && request.tag === one.tag)]
      const i = series ? newestAt(series, x) : -1
      return i < 0 ? null : { run: one!.runs[0]!, wall: series!.wall[i]! }
    },
  }
}

/** The place of the point that is nearest to x; of several passes over it, the last. */
function newestAt({ x: places, wall }: Scalars, x: number): number {
  let found = -1
  places.forEach((place, i) => {
    if (Number.isFinite(wall[i]) && (found < 0 || Math.abs(place - x) <= Math.abs(places[found]! - x))) found = i
  })
  return found
}

/** Of the errors of several runs the one whose place in the text is the last: the others may lack the first tag already. */
function furthest(errors: readonly string[]): string | null {
  const placeOf = (error: string) => error.split('\n').slice(1).at(-1)?.length ?? 0
  return errors.reduce<string | null>((best, error) => (best !== null && placeOf(best) >= placeOf(error) ? best : error), null)
}

/** The lines; minus those of `bases`, if there are any. */
function linesOf(wanted: Wanted[], bases: Wanted[] | null, entries: Entry[], data: (Scalars | null)[], options: Parameters<typeof linesOfOne>[2]): Line[] {
  const found = new Map(entries.map((entry, i) => [keyOf(entry.request), data[i]]))
  const of = (one: Wanted) => linesOfOne(one, one.runs.flatMap((run) => found.get(JSON.stringify([run, one.tag])) ?? []), options)
  if (!bases) return wanted.flatMap(of)
  // Of a baseline that began again, the newest pass.
  const baseOf = new Map(bases.flatMap((one) => of(one).filter(({ earlier }) => !earlier).map((line) => [one.tag, line])))
  return wanted.flatMap((one) => (baseOf.has(one.tag) ? of(one).map((line) => minus(line, baseOf.get(one.tag)!)) : []))
}

/** Notes on a chart: how many points were left out, and how many are not numbers. */
function notesOf(data: (Scalars | null)[]): string {
  let [n, n_kept, n_odd, n_pending] = [0, 0, 0, 0]
  const rounded = data.some((series) => series?.integers) ? 'integers beyond 2⁵³ are drawn rounded' : ''
  for (const series of data) {
    if (!series) continue
    n += series.n
    n_kept += series.x.length
    n_pending += series.n_pending
    for (const y of series.y) if (!Number.isFinite(y)) n_odd++
  }
  const thinned = n > n_kept ? `${exact(n_kept)} of ${exact(n)} points, extremes kept` : ''
  const odd = n_odd ? `${n > n_kept ? '≥ ' : ''}${count(n_odd)} NaN or ∞` : ''
  const faint = data.some((series) => series?.parts.some(({ alpha }) => alpha < 1)) ? FAINT : ''
  const reading = n_pending ? `${count(n_pending)} tensors are still read …` : ''
  return [reading, odd, rounded, thinned, faint].filter(Boolean).join(' · ')
}
