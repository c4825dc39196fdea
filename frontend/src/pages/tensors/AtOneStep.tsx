// The values of several tensors at a step, as histograms in one chart, in the colours of their runs.

import { useMemo } from 'preact/hooks'
import { styleOfRun } from '../../data/looks'
import { useHistogramsOf, type HistogramSeries } from '../../data/tensors'
import { at } from '../../state/state'
import { dark } from '../../state/theme'
import type { Line } from '../../views/draw'
import { number } from '../../views/format'
import { stylesOf } from '../../views/palette'
import { LineNames, SoloChart } from '../../views/SoloChart'
import type { Place } from './Beside'
import { outlineOf } from './outline'

/** The last record up to a step; the first where all are later. */
const rowAt = ({ steps }: HistogramSeries, step: number): number => Math.max(0, steps.filter((one) => one <= step).length - 1)

export function AtOneStep({ places, step, scale }: { places: readonly Place[]; step: number; scale: 'linear' | 'symlog' }) {
  const found = useHistogramsOf(places, { bins: at.bins.value || undefined, scale })
  const ofRuns = new Set(places.map(({ run }) => run)).size === places.length
  const lines = useMemo((): (Line & { at: number })[] => {
    const styles = stylesOf(places.map((_, i) => i))
    return (found.value ?? []).flatMap(({ place, of }, i) => {
      const row = rowAt(of, step)
      if (of.steps[row] === undefined) return []
      const outline = outlineOf(of.counts[row]!, of.edges[row]!)
      return [{ id: `${place.run} ${place.tag}`, label: place.label, style: ofRuns ? styleOfRun(place.run) : styles[i]!, at: of.steps[row]!, ...outline }]
    })
  }, [found.value, step, ofRuns])
  if (found.problem) return <p class="banner" role="alert">{found.problem}</p>
  if (!found.value) return <div class="panel-wait" role="status" aria-label="Counting" />
  return (
    <div class={`curve-box ${found.fresh ? '' : 'is-stale'}`}>
      <SoloChart id="at one step" title={`Share of the values for each unit, at step ${number(step)}`} lines={lines} xname="value" ylog={at.logcounts.value} dark={dark.value} />
      <LineNames label="Histograms" lines={lines} remark={(line) => line.at !== step && <span class="muted"> step {number(line.at)}</span>} />
    </div>
  )
}
