// Long lists: only the rows in sight exist. Rows may differ in height, but each height is known beforehand.

export function offsetsOf(heights: readonly number[]): Float64Array {
  const offsets = new Float64Array(heights.length + 1)
  for (let i = 0; i < heights.length; i++) offsets[i + 1] = offsets[i]! + heights[i]!
  return offsets
}

/** The rows that touch `top` … `bottom`: from the first, to before the second. */
export function rowsBetween(offsets: Float64Array, top: number, bottom: number): [number, number] {
  const n = offsets.length - 1
  const from = Math.max(0, lastAtMost(offsets, top))
  const end = Math.min(n, lastAtMost(offsets, bottom) + 1)
  return [Math.min(from, n), Math.max(from, end)]
}

function lastAtMost(offsets: Float64Array, at: number): number {
  let [low, high] = [0, offsets.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (offsets[middle]! <= at) low = middle + 1
    else high = middle
  }
  return low - 1
}
