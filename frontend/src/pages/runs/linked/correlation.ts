// Spearman's rank correlation: how far two columns rise together, whatever their scales.

export interface Correlation {
  /** From -1 to 1; NaN where one of the two is the same everywhere. */
  rho: number
  /** How many runs have both. */
  n: number
}

/** The correlation of the ranks of numbers, and of yes and no; equal ones share their mean rank. */
export function rankCorrelation(x: readonly unknown[], y: readonly unknown[]): Correlation {
  const pairs = x.flatMap((one, i) => {
    const [a, b] = [numberOf(one), numberOf(y[i])]
    return Number.isNaN(a) || Number.isNaN(b) ? [] : [[a, b] as const]
  })
  const [a, b] = [ranksOf(pairs.map(([one]) => one)), ranksOf(pairs.map(([, one]) => one))]
  const mean = (pairs.length + 1) / 2
  const sum = (of: (i: number) => number) => pairs.reduce((total, _, i) => total + of(i), 0)
  const both = sum((i) => (a[i]! - mean) * (b[i]! - mean))
  const rho = both / Math.sqrt(sum((i) => (a[i]! - mean) ** 2) * sum((i) => (b[i]! - mean) ** 2))
  return { rho: pairs.length > 1 ? rho : NaN, n: pairs.length }
}

const numberOf = (one: unknown): number => (typeof one === 'number' ? one : typeof one === 'boolean' ? Number(one) : NaN)

/** The place of each among all in their order, from 1 on. */
function ranksOf(values: readonly number[]): Float64Array {
  const order = values.map((_, i) => i).sort((i, j) => (values[i]! < values[j]! ? -1 : values[i]! > values[j]! ? 1 : 0))
  const ranks = new Float64Array(values.length)
  for (let start = 0, end = 0; start < order.length; start = end) {
    while (end < order.length && values[order[end]!] === values[order[start]!]) end++
    for (let k = start; k < end; k++) ranks[order[k]!] = (start + 1 + end) / 2
  }
  return ranks
}
