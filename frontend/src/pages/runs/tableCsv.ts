// A table as CSV.

import { quoted } from '../../views/recordsCsv'

export function tableCsv(names: readonly string[], rows: readonly (readonly unknown[])[]): string {
  return `${[names.map(quoted).join(','), ...rows.map((row) => row.map(cell).join(','))].join('\n')}\n`
}

function cell(value: unknown): string {
  if (value === undefined || value === null) return ''
  if (typeof value === 'number') return String(value)
  return quoted(typeof value === 'string' ? value : JSON.stringify(value))
}
