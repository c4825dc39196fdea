// One tag's chart: wants its series, makes lines of them, and offers what can be done with it.

import { signal } from '@preact/signals'
import { useMemo, useRef } from 'preact/hooks'
import type { Entry } from '../../data/scalars'
import type { Scalars, ScalarsRequest } from '../../data/types'
import { at, state, toggled, update } from '../../state/state'
import { dark } from '../../state/theme'
import { IconButton, Menu } from '../../ui/parts'
import { Chart, type Cursor } from '../../views/Chart'
import type { Line } from '../../views/draw'
import { count } from '../../views/format'
import type { Model } from '../../views/plot'
import { downloadsOf } from './downloads'
import { drawn, lineOf, type Drawn } from './drawn'
import { marksOf } from './marks'
import { pointsFor, useSeries } from './series'
import { useTurn } from './turns'

/** One cursor for all charts. */
export const cursor = signal<Cursor | null>(null)

interface PanelProps {
  tag: string
  /** What the card is called; the section's prefix need not be said again. */
  title: string
  runs: ReadonlySet<string>
  large?: boolean
}

export function Panel({ tag, title, runs, large = false }: PanelProps) {
  const mine = useTurn()
  const pinned = at.panel.value.includes(tag)
  const yzoom = at.yzoom.value[tag] ?? null
  const model = useRef<Model | null>(null)
  const { lines, notes, error, requests, loading } = useLines(tag, runs, large)

  const onZoom = (xs: [number, number] | null, ys: [number, number] | null) =>
    update({ ...(xs && { zoom: xs }), ...(ys && { yzoom: { ...state.peek().yzoom, [tag]: ys } }) })
  const reset = () => {
    const { [tag]: _, ...rest } = state.peek().yzoom
    update({ zoom: null, yzoom: rest })
  }

  return (
    <article class="panel" aria-label={tag}>
      <header class="panel-head">
        <h3 title={tag}>{title}</h3>
        <span class="panel-notes">{notes}</span>
        <div class="panel-tools">
          {(yzoom || at.zoom.value) && <IconButton icon="reset" label="Reset zoom (double click)" onClick={reset} />}
          <IconButton icon="pin" label={pinned ? 'Unpin' : 'Pin to the top'} pressed={pinned} onClick={() => update({ panel: toggled(at.panel.peek(), tag) })} />
          <Menu icon="download" label={`Download ${tag}`} items={downloadsOf(tag, requests, () => model.current)} />
          {!large && <IconButton icon="expand" label="Enlarge" onClick={() => update({ focus: tag })} />}
        </div>
      </header>
      {error && !lines.length ? (
        <p class="panel-problem" role="alert">
          {error}
        </p>
      ) : !mine || (loading && !lines.length) ? (
        <div class="panel-wait" role="status" aria-label="Loading" />
      ) : (
        <Chart
          id={(large ? 'large ' : '') + tag}
          title={tag}
          lines={lines}
          marks={marksOf(at.x.value)}
          kind={at.x.value}
          xlog={at.xlog.value && at.x.value !== 'wall'}
          ylog={at.ylog.value}
          clip={at.clip.value}
          zoom={at.zoom.value}
          yzoom={yzoom}
          dark={dark.value}
          cursor={cursor}
          onZoom={onZoom}
          onReset={reset}
          onModel={(now) => (model.current = now)}
        />
      )}
    </article>
  )
}

interface Lines {
  lines: Line[]
  notes: string
  error: string | null
  loading: boolean
  requests: { label: string; request: ScalarsRequest }[]
}

function useLines(tag: string, runs: ReadonlySet<string>, large: boolean): Lines {
  const x = at.x.value
  const zoom = at.zoom.value
  const wanted = drawn.value.map((one) => ({ ...one, runs: one.runs.filter((key) => runs.has(key)) })).filter((one) => one.runs.length)
  const n_runs = wanted.reduce((n, one) => n + one.runs.length, 0)
  const requests = wanted.flatMap((one) =>
    one.runs.map((run): ScalarsRequest => ({ run, tag, x, points: pointsFor(n_runs, large), ...(zoom && { from: zoom[0], to: zoom[1] }) })),
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
    const now = entry.data.value ?? before.current.get(entry.request.run) ?? null
    if (now) before.current.set(entry.request.run, now)
    return now
  })
  const options = { weight: at.smooth.value, band: at.band.value }
  const lines = useMemo(() => linesOf(wanted, entries, data, options), [...data, drawn.value, options.weight, options.band, entries])
  const error = entries.map((entry) => entry.error.value).find(Boolean) ?? null
  return {
    lines,
    notes: notesOf(data),
    error,
    loading: entries.some((entry) => !entry.data.value && !entry.error.value),
    requests: entries.map(({ request }) => ({ label: wanted.find((one) => one.runs.includes(request.run))!.label, request })),
  }
}

function linesOf(wanted: Drawn[], entries: Entry[], data: (Scalars | null)[], options: Parameters<typeof lineOf>[2]): Line[] {
  const found = new Map(entries.map((entry, i) => [entry.request.run, data[i]]))
  return wanted.flatMap((one) => {
    const series = one.runs.flatMap((key) => found.get(key) ?? [])
    const line = lineOf(one, series, options)
    return line ? [line] : []
  })
}

/** What the reader should know of what they see: how much was left out, and what is no number. */
function notesOf(data: (Scalars | null)[]): string {
  let [n, n_kept, n_odd] = [0, 0, 0]
  for (const series of data) {
    if (!series) continue
    n += series.n
    n_kept += series.x.length
    for (const y of series.y) if (!Number.isFinite(y)) n_odd++
  }
  const thinned = n > n_kept ? `${count(n_kept)} of ${count(n)} points` : ''
  const odd = n_odd ? `${n > n_kept ? '≥ ' : ''}${count(n_odd)} NaN or ∞` : ''
  return [odd, thinned].filter(Boolean).join(' · ')
}
