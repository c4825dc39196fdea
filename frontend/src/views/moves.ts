// Moves and scales the visible range of an axis: pure.

import type { Span } from './span'

/** No closer than rounding allows. */
const MIN_SHARE = 1e-12

/**
 * Move a span by a share of its width and make it `factor` as wide around a share of it, within the whole.
 *
 * On a logarithmic axis shares are those of the logarithm. What would leave the whole stops at its end.
 */
export function moved(span: Span, whole: Span, log: boolean, by: number, factor: number, around: number): Span {
  const plain = !log || span[0] <= 0 || whole[0] <= 0
  const [to, back] = plain ? [(v: number) => v, (v: number) => v] : [Math.log10, (v: number) => 10 ** v]
  const [low, high] = [to(span[0]), to(span[1])]
  const [least, most] = [Math.min(low, to(whole[0])), Math.max(high, to(whole[1]))]
  const width = Math.min(most - least, (high - low) * factor)
  if (!(width > MIN_SHARE * Math.max(Math.abs(low), Math.abs(high)))) return span
  const start = low + (high - low) * by + around * (high - low - width)
  const first = Math.min(most - width, Math.max(least, start))
  return [back(first), back(first + width)]
}
