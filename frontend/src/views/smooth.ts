// Smoothing: an exponential average of the line itself, whatever the density of its points; the same numbers as
// `sightglass.views.smoothing`, where the formula and its sources are.

/** Of the x axis; W&B's unit: each weighs the past by the square root of the weight. */
const N_UNITS = 1_000
/** Below, 1 − (1 − e⁻ᵃ)/a cancels: its series is exact to 1e-14 there. */
const SMALL = 1e-4

/**
 * Smooth a line whose x increases. Values that are no finite numbers stay as they are and are not mixed in.
 *
 * @param weight - From 0 (y itself) to below 1.
 * @param extent - The length of the visible x axis, which all lines of a chart share.
 * @param means - The mean of the line between each point and the one before; NaN where they are joined straight.
 */
export function smooth(x: ArrayLike<number>, y: Float64Array, weight: number, extent: number, means?: ArrayLike<number>): Float64Array {
  if (!(weight > 0 && extent > 0 && extent < Infinity)) return y
  const rate = (-0.5 * Math.log(weight) * N_UNITS) / extent
  const out = new Float64Array(y.length)
  let [first, last, before, sum] = [NaN, NaN, NaN, 0]
  for (let i = 0; i < y.length; i++) {
    const [at, value] = [x[i]!, y[i]!]
    out[i] = value
    // NaN and infinities differ from themselves by NaN.
    if (value - value !== 0 || at - at !== 0) continue
    if (Number.isNaN(first)) first = at
    else {
      const a = (at - last) * rate
      const lost = -Math.expm1(-a)
      const added = a > SMALL ? 1 - lost / a : a / 2 - (a * a) / 6 + (a * a * a) / 24
      const mean = means ? means[i]! : NaN
      const part = mean - mean === 0 ? lost * mean : (lost - added) * before + added * value
      sum += part - lost * sum
      const mass = -Math.expm1((first - at) * rate)
      if (mass > 0) out[i] = sum / mass
    }
    last = at
    before = value
  }
  return out
}

/**
 * Smooth a line as TensorBoard does: an exponential average in which each point weighs the same, however far apart they
 * are, divided by the sum of the weights (`vz_line_chart2`, "resmoothDataset"). A constant line stays as it is.
 *
 * @param weight - From 0 (y itself) to below 1.
 * @param means - The mean of the line between each point and the one before, where points were thinned: it stands for them.
 */
export function smoothByPoint(y: Float64Array, weight: number, means?: ArrayLike<number>): Float64Array {
  const values = y.map((value, i) => (Number.isFinite(value) && Number.isFinite(means?.[i] ?? NaN) ? means![i]! : value))
  if (!(weight > 0) || values.every((value) => value === values[0])) return y
  let [sum, mass] = [0, 0]
  return values.map((value) => {
    if (!Number.isFinite(value)) return value
    sum = weight * sum + (1 - weight) * value
    mass = weight * mass + (1 - weight)
    return sum / mass
  })
}
