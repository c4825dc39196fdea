// The latest table of each stream, with its first rows.

import { number } from './format'
import type { Series } from './series'
import { SheetTable } from './SheetTable'
import { sheetOf } from './values'

export function Sheets({ series }: { series: readonly Series[] }) {
  const shown = series.flatMap(({ id, label, records }) => {
    const last = records.values.filter(({ value }) => sheetOf(value)).at(-1)
    return last ? [{ key: id, label, step: last.step, sheet: sheetOf(last.value)! }] : []
  })
  if (!shown.length) return <p class="chart-empty">No table yet</p>
  return (
    <div class="sheets">
      {shown.map(({ key, label, step, sheet }) => (
        <section key={key}>
          <p class="muted">
            {series.length > 1 && `${label} · `}step {number(step, 10)}
            {sheet.rows.length < sheet.n_rows && ` · the first ${sheet.rows.length} of ${sheet.n_rows.toLocaleString('en')} rows`}
          </p>
          <SheetTable name={label} {...sheet} />
        </section>
      ))}
    </div>
  )
}
