// Slices as text, one entry for each dimension, and the indices of their cells. The server validates them.

/** The places `start`, `start + step`, …: `n` of them. */
export interface Axis {
  start: number
  step: number
  n: number
}

/** Split `[0, ..., 2:5]` into an entry for each of `n_dims` dimensions; null where it cannot be. */
export function entriesOf(slice: string, n_dims: number): string[] | null {
  const inner = slice.trim().replace(/^\[/, '').replace(/\]$/, '').trim()
  const parts = inner === '' ? [] : inner.split(',').map((part) => part.trim())
  if (parts.at(-1) === '') parts.pop()
  const n_given = parts.filter((part) => part !== '...').length
  if (n_given > n_dims || parts.includes('') || parts.length - n_given > 1) return null
  const missing = new Array<string>(n_dims - n_given).fill(':')
  const at = parts.includes('...') ? parts.indexOf('...') : parts.length
  return [...parts.slice(0, at), ...missing, ...parts.slice(at + 1)]
}

export const sliceOf = (entries: readonly string[]): string => `[${entries.join(', ')}]`

export const isFree = (entry: string): boolean => entry.includes(':')

/** The places that a slice such as `2:9:3` chooses of a dimension, as Python counts them; null for an integer. */
export function axisOf(entry: string, length: number): Axis | null {
  if (!isFree(entry)) return null
  const [a, b, c] = entry.split(':').map((part) => (part.trim() === '' ? null : Number(part)))
  const step = c ?? 1
  const low = step > 0 ? 0 : -1
  const high = step > 0 ? length : length - 1
  const bound = (given: number | null | undefined, otherwise: number) =>
    given === null || given === undefined ? otherwise : Math.min(high, Math.max(low, given < 0 ? given + length : given))
  const start = bound(a, step > 0 ? low : high)
  const stop = bound(b, step > 0 ? high : low)
  return { start, step, n: Math.max(0, Math.ceil((stop - start) / step)) }
}

/** Which of an axis' places a place is; -1 where it is none. */
export function placeIn({ start, step, n }: Axis, place: number): number {
  const i = (place - start) / step
  return Number.isInteger(i) && i >= 0 && i < n ? i + 0 : -1
}

/** The row and column at which a table of these entries shows an element; null where it does not. */
export function cellAt(entries: readonly string[], shape: readonly number[], index: readonly number[]): [number, number] | null {
  if (index.length !== shape.length || entries.length !== shape.length) return null
  const found: number[] = []
  for (const [d, entry] of entries.entries()) {
    const axis = axisOf(entry, shape[d]!)
    if (!axis) {
      if ((Number(entry) + shape[d]!) % shape[d]! !== index[d]) return null
      continue
    }
    const i = placeIn(axis, index[d]!)
    if (i < 0) return null
    found.push(i)
  }
  return [found[0] ?? 0, found[1] ?? 0]
}

/** Change as few entries as it takes to have an element in the table. */
export function showing(entries: readonly string[], shape: readonly number[], index: readonly number[]): string[] {
  return entries.map((entry, d) => {
    const axis = axisOf(entry, shape[d]!)
    if (!axis) return String(index[d])
    return placeIn(axis, index[d]!) < 0 ? ':' : entry
  })
}

/** The element that a table shows at a row and column. */
export function indexAt(entries: readonly string[], shape: readonly number[], row: number, column: number): number[] {
  const rest = [row, column]
  return entries.map((entry, d) => {
    const axis = axisOf(entry, shape[d]!)
    return axis ? axis.start + axis.step * rest.shift()! : (Number(entry) + shape[d]!) % shape[d]!
  })
}
