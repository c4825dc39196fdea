// Streams in a view. Which one is not decided here: views/choose.py has decided it.

import type { Signal } from '@preact/signals'
import { useMemo, useState } from 'preact/hooks'
import { placeOfStep, StepBar } from '../ui/StepBar'
import { asOf, stepsOf } from './asOf'
import { BarChart } from './BarChart'
import type { Cursor } from './Chart'
import type { Mark } from './draw'
import { Heat } from './Heat'
import { Lines } from './Lines'
import { number } from './format'
import { Pictures } from './Pictures'
import { Plane } from './Plane'
import type { Model } from './plot'
import { Ridge } from './Ridge'
import { fading, type Series, type ViewOptions } from './series'
import { Sheets } from './Sheets'
import { Sounds } from './Sounds'
import { Space } from './Space'
import { matrixOf } from './values'
import { Log, Table } from './Written'

export const VIEWS = ['line', 'annotated', 'xy', 'scatter', 'line3d', 'bars', 'histogram', 'heatmap', 'images', 'picture', 'sounds', 'sheet', 'log', 'table'] as const

export interface ViewProps {
  id: string
  title: string
  view: string
  series: readonly Series[]
  options: ViewOptions
  /** Another number whenever something came. */
  version: number
  dark: boolean
  cursor?: Signal<Cursor | null>
  /** Places on the axis of lines, such as commands. */
  marks?: readonly Mark[]
  /** Changes when the zoom is to be reset. */
  home?: number
  onModel?: (model: Model | null) => void
}

/** The streams in the view; a slider below goes back through the records of a view that shows one at a time. */
export function View(props: ViewProps) {
  const { view, series, options, version } = props
  const [step, setStep] = useState<number | null>(null)
  const { steps, walls } = stepsOf(view, series, options)
  const at = step === null || steps.length < 2 ? null : placeOfStep(steps, step)
  const seen = useMemo(() => (at === null ? series : asOf(series, steps[at]!)), [series, version, at])
  return (
    <>
      <Drawn {...props} series={seen} version={at === null ? version : -1 - at} />
      {steps.length > 1 && (
        <div class="view-steps">
          <StepBar label="Step" steps={steps} walls={walls} step={step} onStep={setStep} />
        </div>
      )}
    </>
  )
}

function Drawn(props: ViewProps) {
  const { view, series } = props
  if (series.every(({ records }) => records.n === 0)) return <p class="chart-empty">No records yet</p>
  switch (view) {
    case 'line':
      return <Lines {...props} />
    case 'xy':
    case 'scatter':
    case 'annotated':
      return <Plane {...props} texts={view === 'annotated'} scattered={view === 'scatter'} />
    case 'line3d':
      return <Space {...props} />
    case 'bars':
      return <BarChart {...props} />
    case 'histogram':
      return <Ridge {...props} />
    case 'heatmap':
      return <Heats {...props} />
    case 'images':
    case 'picture':
      return <Pictures {...props} large={view === 'picture'} />
    case 'sheet':
      return <Sheets {...props} />
    case 'sounds':
      return <Sounds {...props} />
    case 'log':
      return <Log {...props} />
    default:
      return <Table {...props} />
  }
}

/** The latest matrix of each stream; with frames, earlier ones beside it. */
function Heats({ series, options, dark }: ViewProps) {
  const found = series.flatMap(({ id, label, records }) => {
    const frames = records.values.flatMap(({ step, index, value }) => {
      const matrix = matrixOf(value)
      return matrix ? [{ key: `${id} ${options.frames ? index : ''}`, label, step, matrix }] : []
    })
    return frames.slice(options.frames ? -1 - options.history : -1).reverse()
  })
  if (!found.length) return <p class="chart-empty">No matrix yet</p>
  return (
    <div class={found.length > 1 ? 'heats' : 'drawn'}>
      {found.map(({ key, label, step, matrix }, i) => (
        <section key={key} class="heats-one" style={{ opacity: options.frames && series.length === 1 ? fading(i, found.length) : 1 }}>
          <p class="names">
            <span>
              {series.length > 1 && `${label} · `}step {number(step, 10)}
            </span>
          </p>
          <Heat matrix={matrix} dark={dark} />
        </section>
      ))}
    </div>
  )
}
