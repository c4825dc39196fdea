// Views that show one record at a time, at a step of the reader's choice: everything that came until then.

import type { Records } from './records'
import type { Series, ViewOptions } from './series'

/** The steps of the records that are held, in order, each once, with the time of the last record of each. */
export interface Steps {
  steps: number[]
  walls: number[]
}

const NO_STEPS: Steps = { steps: [], walls: [] }

/** Whether a view shows only the latest of the records that it holds. */
export function showsLatest(view: string, n_series: number, { frames, over }: ViewOptions): boolean {
  if (view === 'histogram') return n_series > 1 || frames || over === 'latest'
  return ['images', 'picture', 'sounds', 'sheet', 'heatmap', 'bars', 'table'].includes(view) || (view === 'line' && frames)
}

export function stepsOf(view: string, series: readonly Series[], options: ViewOptions): Steps {
  if (!showsLatest(view, series.length, options)) return NO_STEPS
  const walls = new Map<number, number>()
  for (const { records } of series) for (const { step, wall } of records.values) walls.set(step, wall)
  const steps = [...walls.keys()].sort((a, b) => a - b)
  return { steps, walls: steps.map((step) => walls.get(step)!) }
}

/** The series as they were at a step. */
export function asOf(series: readonly Series[], step: number): Series[] {
  return series.map((one) => ({ ...one, records: until(one.records, step) }))
}

function until(records: Records, step: number): Records {
  const values = records.values.filter((one) => one.step <= step)
  return Object.create(records, { values: { value: values }, n: { value: values.length } }) as Records
}
