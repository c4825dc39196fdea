// Which value has which colour: a ramp between the values of its ends.

import { number } from './format'

export function ColorKey({ low, high, colors, label }: { low: number; high: number; colors: readonly string[]; label?: string }) {
  return (
    <span class="color-key" role={label ? 'img' : undefined} aria-label={label && `${label}: from ${number(low, 3)} to ${number(high, 3)}`} title={label}>
      <span>{number(low, 3)}</span>
      <span class="heat-ramp" style={{ background: `linear-gradient(to right, ${colors.join(', ')})` }} />
      <span>{number(high, 3)}</span>
    </span>
  )
}
