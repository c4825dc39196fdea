// Records as CSV, one row each; values that are not numbers are written as text or JSON.

import { arrayOf } from './array'
import type { Records } from './records'

// A text that a spreadsheet would run as a formula is made a text.
export const quoted = (text: string): string => `"${(/^[=+\-@]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`

function cell(value: unknown): string {
  if (typeof value === 'number') return String(value)
  if (typeof value === 'string') return quoted(value)
  return quoted(JSON.stringify(value, plain) ?? '')
}

function plain(_: string, value: unknown): unknown {
  const array = arrayOf(value)
  if (array) return { dtype: array.dtype, shape: array.shape, values: Array.from(array.data) }
  if (value instanceof Uint8Array) return `${value.length} bytes`
  if (typeof value === 'bigint' || (typeof value === 'number' && !Number.isFinite(value))) return String(value)
  return value
}

/** `run` and `id` are the name and the id of a stream's run; without them, the file is not about runs. */
interface Table {
  name: string
  records: Records
  run?: string
  id?: string
}

export function csvOf(tables: readonly Table[]): string {
  const ofRuns = tables.some(({ run }) => run !== undefined)
  const rows = [`${ofRuns ? 'run,run_id,' : ''}stream,step,wall_time,value`]
  for (const { name, records, run = '', id = '' } of tables) {
    const of = `${ofRuns ? `${quoted(run)},${quoted(id)},` : ''}${quoted(name)}`
    const { step, wall, index, y } = records.numbers
    // Numbers that came among other values stand with them.
    const kept = new Set(records.values.map((one) => one.index))
    for (let i = 0; i < y.length; i++) if (!kept.has(index[i]!)) rows.push(`${of},${step[i]},${wall[i]},${y[i]}`)
    for (const one of records.values) rows.push(`${of},${one.step},${one.wall},${cell(one.value)}`)
  }
  return rows.join('\n') + '\n'
}
