// Debiased exponential smoothing (Kingma & Ba 2015, section 3): s = w·s + (1 − w)·y, divided by 1 − w^n, so that the
// first points are not drawn towards zero.

/** Where smoothing has got to, so that it can go on with what comes. */
export interface Smoothed {
  sum: number
  mass: number
}

/**
 * Smooth a line.
 *
 * Each point that is drawn counts once, as in other dashboards: a closer look is smoothed less, and a run of any length
 * gets smoother. Values that are no finite numbers stay as they are and are not mixed in.
 */
export function smooth(y: Float64Array, weight: number): Float64Array {
  if (weight <= 0) return y
  const out = new Float64Array(y.length)
  smoothOn(y, weight, out, 0, { sum: 0, mass: 0 })
  return out
}

/** Smooth what stands at `from` and after it, into the same places of `out`. */
export function smoothOn(y: Float64Array, weight: number, out: Float64Array, from: number, state: Smoothed): void {
  let { sum, mass } = state
  for (let i = from; i < y.length; i++) {
    const value = y[i]!
    // NaN and infinities differ from themselves by NaN.
    if (value - value !== 0) {
      out[i] = value
      continue
    }
    sum = weight * sum + (1 - weight) * value
    mass = weight * mass + (1 - weight)
    out[i] = sum / mass
  }
  state.sum = sum
  state.mass = mass
}
