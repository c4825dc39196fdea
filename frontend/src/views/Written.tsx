// Records as text: the log has a line for each record, the table a column for each name.

import { dateTime, number } from './format'
import { RESTARTED, type Series, type ViewOptions } from './series'
import { Swatch } from './Swatch'
import { named, textOf } from './values'

const N_ROWS = 100
const MAX_COLUMNS = 24

export interface Row {
  series: Series
  step: number
  wall: number
  value: unknown
  /** It stands for something that happened to the run, instead of a record. */
  mark?: boolean
}

/** The latest records of all streams, newest first. */
export function rowsOf(all: readonly Series[], last: number): Row[] {
  const n = last > 0 ? Math.min(last, N_ROWS) : N_ROWS
  const rows = all.flatMap((series): Row[] => {
    const { values, numbers, restarts } = series.records
    // Numbers that came as such stand nowhere else.
    const kept = new Set(values.map((one) => one.index))
    const { step, wall, index, y } = numbers
    const found: (Row & { index: number })[] = []
    for (let i = Math.max(0, y.length - n); i < y.length; i++) if (!kept.has(index[i]!)) found.push({ series, index: index[i]!, step: step[i]!, wall: wall[i]!, value: y[i]! })
    for (const { index, step, wall, value } of values.slice(-n)) found.push({ series, index, step, wall, value })
    return found.flatMap((row, i) => {
      const began = i > 0 && restarts.some((restart) => found[i - 1]!.index < restart && restart <= row.index)
      return began ? [{ ...row, value: RESTARTED, mark: true }, row] : [row]
    })
  })
  return rows.map((row, i) => ({ row, i })).sort((a, b) => b.row.wall - a.row.wall || b.i - a.i).map(({ row }) => row).slice(0, n)
}

interface WrittenProps {
  series: readonly Series[]
  options: ViewOptions
  version: number
}

export function Log({ series, options }: WrittenProps) {
  return (
    <div class="log" role="log" aria-label="Values, newest first" tabIndex={0}>
      {rowsOf(series, options.last).map(({ series: one, step, value, mark }, i) => (
        <div key={i} class="log-row">
          <span class="muted">{mark ? '' : number(step, 10)}</span>
          {series.length > 1 && <Swatch style={one.style} />}
          <span class={mark ? 'muted' : ''}>{textOf(value)}</span>
        </div>
      ))}
    </div>
  )
}

const cellOf = (value: unknown): string => (typeof value === 'number' ? number(value, 6) : textOf(value))

export function Table({ series, options }: WrittenProps) {
  const rows = rowsOf(series, options.last)
  const parts = rows.map(({ value }) => named(value))
  const names = [...new Set(parts.flatMap((one) => one.slice(0, MAX_COLUMNS).map(([name]) => name)))].slice(0, MAX_COLUMNS)
  const n_more = Math.max(0, ...parts.map((one) => one.length)) - names.length
  const plain = rows.some(({ mark }, i) => !mark && parts[i]!.length === 0) || names.length === 0
  // Numbers are aligned at the right, texts at the left.
  const cells = parts.map((one) => new Map(one))
  const numeric = (name: string) => cells.every((row) => !row.has(name) || typeof row.get(name) === 'number')
  const sideOf = new Map(names.map((name) => [name, numeric(name) ? 'is-number' : '']))
  const plainSide = rows.every(({ value, mark }, i) => mark || parts[i]!.length > 0 || typeof value === 'number') ? 'is-number' : 'values-text'
  const n_columns = names.length + Number(plain) + Number(n_more > 0 && names.length > 0)
  return (
    <div class="values-table" tabIndex={0} role="region" aria-label="Values">
      <table>
        <thead>
          <tr>
            <th class="is-number">step</th>
            <th>time</th>
            {series.length > 1 && <th>stream</th>}
            {names.map((name) => (
              <th key={name} class={sideOf.get(name)} title={name}>
                {name}
              </th>
            ))}
            {plain && <th class={plainSide}>value</th>}
            {n_more > 0 && names.length > 0 && <th>and {n_more.toLocaleString('en')} more</th>}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ series: one, step, wall, value, mark }, i) => (
            <tr key={i}>
              <td class="is-number">{mark ? '' : number(step, 10)}</td>
              <td>{dateTime(wall).slice(11)}</td>
              {series.length > 1 && (
                <td>
                  <Swatch style={one.style} /> {one.label}
                </td>
              )}
              {mark && (
                <td class={`muted ${names.length ? 'values-text' : plainSide}`} colSpan={n_columns}>
                  {textOf(value)}
                </td>
              )}
              {!mark &&
                names.map((name) => (
                  <td key={name} class={sideOf.get(name)}>
                    {cells[i]!.has(name) ? cellOf(cells[i]!.get(name)) : ''}
                  </td>
                ))}
              {!mark && plain && <td class={plainSide}>{cells[i]!.size ? '' : cellOf(value)}</td>}
              {!mark && n_more > 0 && names.length > 0 && <td />}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
