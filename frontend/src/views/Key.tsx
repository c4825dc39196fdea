// Which colour is which line, and where it stands now.

import { number } from './format'
import type { Line } from './draw'
import { Swatch } from './Swatch'

const MAX_SHOWN = 12

/** The last value of a line that is a number, if it has one. */
export function latestOf({ y }: Pick<Line, 'y'>): number | null {
  for (let i = y.length - 1; i >= 0; i--) if (Number.isFinite(y[i]!)) return y[i]!
  return null
}

export function Key({ lines, frames }: { lines: readonly Line[]; frames: boolean }) {
  // Frames of one stream have one colour: the newest stands for all.
  const shown = frames ? [...new Map(lines.map((line) => [line.style, { ...line, label: line.label.replace(/, step [^,]*$/, '') }])).values()] : lines.filter(({ earlier }) => !earlier)
  if (shown.length < 2 && !shown.some(({ state }) => state)) return null
  return (
    <ul class="view-key" aria-label="Lines">
      {shown.slice(0, MAX_SHOWN).map((line) => {
        const latest = frames ? null : latestOf(line)
        return (
          <li key={line.id} title={line.second ? `${line.label}, read on the axis at the right` : line.label}>
            <Swatch style={line.style} />
            <span class="names-label">{line.label}</span>
            {latest !== null && <b>{number(latest, 4)}</b>}
            {line.state && <span class="muted">({line.state})</span>}
            {line.second && <span aria-hidden="true">→</span>}
          </li>
        )
      })}
      {shown.length > MAX_SHOWN && <li>and {shown.length - MAX_SHOWN} more</li>}
    </ul>
  )
}
