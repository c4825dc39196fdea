// One bar a name, from zero; older frames stand faint behind.

import { number } from './format'
import type { Bars } from './values'

const MAX_BARS = 200

export function BarChart({ bars, history, color }: { bars: Bars; history: Bars[]; color: string }) {
  const finite = [bars, ...history].flatMap(({ values }) => values.filter(Number.isFinite))
  const [low, high] = [Math.min(0, ...finite), Math.max(0, ...finite)]
  const range = high - low || 1
  const place = (value: number) => `${((value - low) / range) * 100}%`
  return (
    <div class="bars" role="list" tabIndex={0} aria-label="Bars">
      {bars.names.slice(0, MAX_BARS).map((name, i) => {
        const value = bars.values[i]!
        return (
          <div key={name} class="bar-row" role="listitem">
            <span class="bar-name" title={name}>
              {name}
            </span>
            <span class="bar-track">
              {history.map((old, k) => (
                <span key={k} class="bar-old" style={{ left: place(old.values[i] ?? 0), opacity: 0.15 + (0.4 * (k + 1)) / history.length }} />
              ))}
              {Number.isFinite(value) && (
                <span class="bar" style={{ left: place(Math.min(0, value)), width: `${(Math.abs(value) / range) * 100}%`, background: color }} />
              )}
            </span>
            <span class="bar-value">{number(value, 4)}</span>
          </div>
        )
      })}
      {bars.names.length > MAX_BARS && <p class="muted">and {bars.names.length - MAX_BARS} more</p>}
    </div>
  )
}
