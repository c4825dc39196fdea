/** The outline of a histogram's bars: the share of the values in each bin, for each unit, so that bins of any width compare. */
export function outlineOf(counts: readonly number[], edges: readonly number[]): { x: Float64Array; y: Float64Array } {
  const n = counts.reduce((sum, count) => sum + count, 0)
  const [x, y] = [new Float64Array(2 * counts.length + 2), new Float64Array(2 * counts.length + 2)]
  x[0] = edges[0]!
  counts.forEach((count, i) => {
    const [low, high] = [edges[i]!, edges[i + 1]!]
    x.set([low, high], 2 * i + 1)
    y.fill(n > 0 ? count / n / (high - low) : 0, 2 * i + 1, 2 * i + 3)
  })
  x[x.length - 1] = edges[counts.length]!
  return { x, y }
}
