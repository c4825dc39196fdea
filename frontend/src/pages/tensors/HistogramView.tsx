// The values of a tag over its steps, as histograms.

import { useMemo } from 'preact/hooks'
import { useHistograms, type HistogramSeries as Reply, type Other } from '../../data/tensors'
import type { Tag } from '../../data/types'
import { at, update } from '../../state/state'
import { dark } from '../../state/theme'
import { Choice, Empty, IconButton, Toggle } from '../../ui/parts'
import { Histograms } from '../../views/Histograms'
import type { Along, HistogramOptions } from '../../views/histogramLayout'
import type { Span } from '../../views/span'
import { finerBins, isSqueezed, stepsWithin, type HistogramSeries } from '../../views/histograms'
import { AtOneStep } from './AtOneStep'
import { BesideTools, useBeside, type Place } from './Beside'
import { Minus } from './Minus'

const KINDS = [
  ['offset', 'Offset'],
  ['overlay', 'Overlay'],
  ['heat', 'Heat map'],
  ['bands', 'Percentiles'],
] as const
const SCALES = [
  ['linear', 'Linear'],
  ['symlog', 'Symlog'],
] as const
const ALONG = [
  ['step', 'step'],
  ['even', 'step, evenly'],
  ['relative', 'relative time'],
  ['wall', 'time'],
] as const
const BINS = [16, 32, 64, 128, 256, 512]

interface HistogramViewProps {
  run: string
  tag: Tag
  n_steps: number
  step: number
  /** What is compared with, over all steps, and its step at this one. */
  others: Other | null
  other: number | null
}

export function HistogramView({ run, tag: shownTag, n_steps, step, others, other }: HistogramViewProps) {
  const { tag, name } = shownTag
  const kind = at.ridge.value
  const scale = at.symlog.value ? 'symlog' : 'linear'
  const values = at.values.value
  // A closer look at some values needs finer bins; all steps share them, so that counts can be compared.
  const { found: plain, squeezed } = usePlain(run, name, others, scale, n_steps)
  const edges = plain.value?.edges[0]
  const bins = edges ? edges.length - 1 : 0
  const finer = useMemo(() => (edges && values && scale === 'linear' && !squeezed ? finerBins(bins, edges, values) : bins), [edges, values, scale, squeezed])
  const closer = useHistograms(finer > bins ? run : '', name, others, { bins: finer, scale }, n_steps)
  const found = finer > bins && closer.fresh ? closer : plain
  const series = useMemo(() => found.value && seriesOf(found.value), [found.value])
  const options = { kind, symlog: at.symlog.value, logCounts: at.logcounts.value, along: at.along.value, values, steps: at.steps.value }
  const zoomed = values || at.steps.value
  const beside = useBeside(run, shownTag)
  const open = (to: number) => update({ step: to, as: 'table' })
  return (
    <>
      <div class="tensor-tools">
        <Choice label="Picture" options={KINDS} value={kind} onChange={(ridge) => update({ ridge })} />
        <Choice label="Scale of values" options={SCALES} value={scale} onChange={(next) => update({ symlog: next === 'symlog', values: null })} />
        {kind !== 'overlay' && (
          <label class="tool-select">
            <span>Axis</span>
            <select value={at.along.value} onChange={({ currentTarget }) => update({ along: currentTarget.value as Along })}>
              {ALONG.map(([along, title]) => (
                <option key={along} value={along}>
                  {title}
                </option>
              ))}
            </select>
          </label>
        )}
        {kind !== 'bands' && <Toggle label="Log counts" title="Logarithms of the counts, so that one large bin does not hide the others" on={at.logcounts.value} onChange={(logcounts) => update({ logcounts })} />}
        {squeezed && <Toggle label="Outliers" title="Let the bins span all values; else the bins at the edges hold the outliers" on={at.outliers.value} onChange={(outliers) => update({ outliers })} />}
        <label class="tool-select">
          <span>Bins</span>
          <select value={at.bins.value} onChange={({ currentTarget }) => update({ bins: Number(currentTarget.value) })}>
            {[...new Set([0, ...BINS, at.bins.value])].sort((a, b) => a - b).map((n) => (
              <option key={n} value={n}>
                {n || 'auto'}
              </option>
            ))}
          </select>
        </label>
        {!others && <BesideTools n={beside.n} />}
        {!others && beside.places.length > 1 && <Toggle label="One chart" title="The histograms at the step, one over the other" on={at.together.value} onChange={(together) => update({ together })} />}
        {shownTag.type === 'tensor' && <Minus run={run} tag={shownTag} step={step} other={other} />}
        {zoomed && <IconButton icon="reset" label="Reset zoom (double click, or 0)" onClick={() => update({ values: null, steps: null })} />}
        <span class="tensor-note muted">{series && noteOf(series, at.steps.value, n_steps) + (squeezed && !at.outliers.value ? ' · outliers in the outer bins' : '')}</span>
      </div>
      {!others && beside.places.length > 1 && at.together.value ? (
        <AtOneStep places={beside.places} step={step} scale={scale} />
      ) : !others && beside.places.length > 1 ? (
        <div class="histograms-beside">
          {beside.places.map((place) => (
            <Card key={`${place.run} ${place.tag}`} place={place} scale={scale} options={options} />
          ))}
        </div>
      ) : plain.problem ? (
        <p class="banner" role="alert">
          {plain.problem}
        </p>
      ) : !series ? (
        <div class="panel-wait" role="status" aria-label="Counting" />
      ) : series.steps.length === 0 ? (
        <Empty title="Nothing to count" mark={false}>
          <p>No step of this tag could be read.</p>
        </Empty>
      ) : (
        <div class={`histograms-box ${plain.fresh ? '' : 'is-stale'}`}>
          <Histograms
            series={series}
            options={options}
            label={`${kind === 'bands' ? 'Percentiles' : 'Histograms'} of ${tag}`}
            dark={dark.value}
            step={step}
            onZoom={(v, s) => update({ ...(v && { values: v }), ...(s && { steps: s }) })}
            onReset={() => update({ values: null, steps: null })}
            onOpen={open}
          />
        </div>
      )}
    </>
  )
}

/** The histograms, whose outliers are in the bins at the edges where they would squeeze all others. */
function usePlain(run: string, tag: string, others: Other | null, scale: 'linear' | 'symlog', n_steps: number) {
  const bins = at.bins.value || undefined
  const whole = useHistograms(run, tag, others, { bins, scale }, n_steps)
  const squeezed = useMemo(() => scale === 'linear' && whole.value !== null && isSqueezed({ counts: whole.value.counts, edges: whole.value.edges[0] ?? [] }), [whole.value, scale])
  const closer = useHistograms(squeezed && !at.outliers.value ? run : '', tag, others, { bins, scale, outliers: 'edge' }, n_steps)
  return { found: squeezed && !at.outliers.value && (closer.value || closer.problem) ? closer : whole, squeezed }
}

/** One of several, side by side; a click opens its table. */
function Card({ place, scale, options }: { place: Place; scale: 'linear' | 'symlog'; options: HistogramOptions }) {
  const { run, tag, label } = place
  const { value: reply, problem } = usePlain(run, tag, null, scale, place.n_steps).found
  const series = useMemo(() => reply && seriesOf(reply), [reply])
  return (
    <figure class="histograms-card">
      <figcaption title={label}>{label}</figcaption>
      {problem ? (
        <p class="panel-problem" role="alert">
          {problem}
        </p>
      ) : !series ? (
        <div class="panel-wait" role="status" aria-label="Counting" />
      ) : series.steps.length === 0 ? (
        <p class="panel-problem">No step could be read.</p>
      ) : (
        <Histograms
          series={series}
          options={options}
          label={`Histograms of ${label}`}
          dark={dark.value}
          step={null}
          onZoom={(v, s) => update({ ...(v && { values: v }), ...(s && { steps: s }) })}
          onReset={() => update({ values: null, steps: null })}
          onOpen={(step) => update({ from: run, tensor: tag, step, as: 'table' })}
        />
      )}
    </figure>
  )
}

const seriesOf = (reply: Reply): HistogramSeries => ({ ...reply, walls: reply.wall_times, edges: reply.edges[0] ?? [0, 1], percentiles: reply.percentiles.map((row) => row.map(Number)) })

/** Nothing is left out silently: which steps are drawn, and what no bin can hold. */
function noteOf(series: HistogramSeries, span: Span | null, n_steps: number): string {
  const [from, end] = stepsWithin(series.steps, span)
  const sum = (column: number[]) => column.slice(from, end).reduce((a, b) => a + b, 0)
  const odd = [
    [sum(series.n_nan), 'NaN'],
    [sum(series.n_posinf), '+Inf'],
    [sum(series.n_neginf), '−Inf'],
  ] as const
  const steps = `${(end - from).toLocaleString('en')} ${series.steps.length < n_steps ? `of ${n_steps.toLocaleString('en')} ` : ''}steps`
  return [steps, ...odd.filter(([n]) => n > 0).map(([n, name]) => `${n.toLocaleString('en')} ${name} besides`)].join(' · ')
}
