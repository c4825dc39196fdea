// A statistic of tensors over their steps, as a chart and as files.

import { useMemo, useRef, useState } from 'preact/hooks'
import { knownRun, labelOf } from '../../data/runs'
import { useStatistics, type StepStatistics } from '../../data/tensors'
import type { Tag } from '../../data/types'
import { at, state, update } from '../../state/state'
import { dark } from '../../state/theme'
import { Icon } from '../../ui/Icon'
import { Empty, Menu, Toggle } from '../../ui/parts'
import { tellError } from '../../ui/toasts'
import { csvOf, pngOf, saveFile, svgOf } from '../../views/export'
import type { Line } from '../../views/draw'
import { stylesOf } from '../../views/palette'
import type { Model } from '../../views/plot'
import { LineNames, SoloChart } from '../../views/SoloChart'
import { withChart } from '../charts/sections'
import { BesideTools, useBeside, type Place } from './Beside'
import { CURVES } from './Overview'

/** The statistic as numbers; a count that a histogram does not tell is none. */
const column = (of: StepStatistics, name: string): Float64Array => Float64Array.from(of.statistics[name] ?? [], (value) => (name.startsWith('n_') && Number(value) < 0 ? NaN : Number(value)))

export function CurveView({ run, tag }: { run: string; tag: Tag }) {
  const { places, n } = useBeside(run, tag)
  const found = useStatistics(places)
  const [ylog, setLog] = useState(false)
  const model = useRef<Model | null>(null)
  const name = at.curve.value
  const title = `${CURVES[name]} of ${tag.tag}`
  const lines = useMemo((): Line[] => {
    const styles = stylesOf((found.value ?? []).map((_, i) => i))
    return (found.value ?? []).map(({ place, of }, i) => ({ id: `${place.run} ${place.tag}`, label: place.label, style: styles[i]!, x: Float64Array.from(of.steps), y: column(of, name) }))
  }, [found.value, name])
  const pending = (found.value ?? []).reduce((sum, { of }) => sum + of.n_pending, 0)
  const svg = () => svgOf(title, 'step', model.current!)
  const safely = (save: () => Promise<void> | void) => () => void Promise.resolve().then(save).catch(tellError)
  return (
    <>
      <div class="tensor-tools">
        <label class="tool-select">
          <span>Statistic</span>
          <select value={name} onChange={({ currentTarget }) => update({ curve: currentTarget.value as typeof name })}>
            {Object.entries(CURVES).map(([key, label]) => (
              <option key={key} value={key}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <Toggle label="Log y" title="A logarithmic axis for the statistic" on={ylog} onChange={setLog} />
        <BesideTools n={n} />
        <span class="tensor-note muted" role="status">
          {pending > 0 && `${pending.toLocaleString('en')} records are still read …`}
        </span>
        <button type="button" class="button" title="Draw it on the page Charts, for all visible runs, beside other series" onClick={() => update({ own: withChart(state.peek().own, null, { name: title, tags: [`${name}(${tag.name})`] }) }, { page: 'charts' })}>
          <Icon name="plus" size={14} /> Chart
        </button>
        <Menu
          icon="download"
          label="Download the statistics"
          items={[
            { text: 'PNG picture', onClick: safely(async () => saveFile(`${title}.png`, await pngOf(svg()))) },
            { text: 'SVG picture', onClick: safely(() => saveFile(`${title}.svg`, svg(), 'image/svg+xml')) },
            { text: 'CSV, all statistics', onClick: safely(() => saveFile(`${tag.tag}-statistics.csv`, statisticsCsv(found.value ?? []), 'text/csv')) },
          ]}
        />
      </div>
      {found.problem ? (
        <p class="banner" role="alert">
          {found.problem}
        </p>
      ) : !found.value ? (
        <div class="panel-wait" role="status" aria-label="Reading the steps" />
      ) : lines.every(({ x }) => x.length === 0) && pending === 0 ? (
        <Empty title="No step could be read" mark={false} />
      ) : (
        <div class={`curve-box ${found.fresh ? '' : 'is-stale'}`}>
          <SoloChart id="statistics" title={title} lines={lines} ylog={ylog} dark={dark.value} onModel={(now) => (model.current = now)} />
          {lines.length > 1 && <LineNames label="Lines" lines={lines} />}
        </div>
      )}
    </>
  )
}

/** As the charts' files: one row for each number, under the tag with the statistic's name after a dot. */
function statisticsCsv(found: readonly { place: Place; of: StepStatistics }[]): string {
  const tables = found.flatMap(({ place, of }) =>
    Object.keys(of.statistics).map((name) => ({
      label: labelOf(place.run),
      id: knownRun(place.run)?.id ?? '',
      tag: `${place.tag}.${name}`,
      step: Float64Array.from(of.steps),
      wall: Float64Array.from(of.wall_times),
      y: column(of, name),
    })),
  )
  return csvOf('', tables)
}
