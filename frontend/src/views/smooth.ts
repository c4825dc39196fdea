// Debiased exponential smoothing (Kingma & Ba 2015, section 3): s = w·s + (1 − w)·y, divided by 1 − w^n, so that the
// first points are not drawn towards zero.

/**
 * Smooth a line.
 *
 * Each point that is drawn counts once, as in other dashboards: a closer look is smoothed less, and a run of any length
 * gets smoother. Values that are no finite numbers stay as they are and are not mixed in.
 */
export function smooth(y: Float64Array, weight: number): Float64Array {
  if (weight <= 0) return y
  const out = new Float64Array(y.length)
  let sum = 0
  let mass = 0
  for (let i = 0; i < y.length; i++) {
    const value = y[i]!
    if (!Number.isFinite(value)) {
      out[i] = value
      continue
    }
    sum = weight * sum + (1 - weight) * value
    mass = weight * mass + (1 - weight)
    out[i] = sum / mass
  }
  return out
}
