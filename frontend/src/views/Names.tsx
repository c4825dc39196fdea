// Which colour is which stream; a single one needs no name.

import type { Series } from './series'
import { Swatch } from './Swatch'

export function Names({ series }: { series: readonly Series[] }) {
  if (series.length === 1) return null
  return (
    <p class="names">
      {series.map(({ id, label, style, second }) => (
        <span key={id} title={label}>
          <Swatch style={style} />
          <span class="names-label">{label}</span>
          {second && <span title="On the right axis">→</span>}
        </span>
      ))}
    </p>
  )
}
