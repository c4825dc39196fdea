// Colours of lines: those of `see/palette.py`, so page, terminal and notebook agree. Each has a contrast of at least 3
// on white and on near-black, and differs for people who see colours differently. Where two lines of a chart
// share a colour, their dashes differ.

export const LINES = ['#3f8fc4', '#dc6b4a', '#2f9e77', '#9a74c9', '#c08a1e', '#cf5f93', '#7f9440', '#7d8794'] as const
export const DASHES: readonly number[][] = [[], [8, 4], [3, 3], [12, 3, 3, 3]]
export const SEQUENTIAL = ['#440154', '#472d7b', '#3b528b', '#2c728e', '#21918c', '#28ae80', '#5ec962', '#addc30', '#fde725']
export const DIVERGING = ['#9fe3ee', '#4fb3d4', '#2f78b7', '#2b4478', '#1f1e24', '#6b2737', '#b8433b', '#e8804f', '#ffd19c']
/** On white, zero is light. The colours are ColorBrewer's RdBu. */
export const DIVERGING_LIGHT = ['#2166ac', '#4393c3', '#92c5de', '#d1e5f0', '#f7f7f7', '#fddbc7', '#f4a582', '#d6604d', '#b2182b']
export const MISSING: Rgb = [224, 80, 170]

export type Rgb = [number, number, number]

export interface LineStyle {
  color: string
  dash: number[]
}

/** The style for a line that has a place of its own among all; `n_before` others of its colour are drawn too. */
export function styleOf(place: number, n_before = 0): LineStyle {
  return { color: LINES[place % LINES.length]!, dash: DASHES[n_before % DASHES.length]! }
}

/** The style of one of several lines: a colour for each, and a dash for those that share a colour. */
export function stylesOf(places: readonly number[]): LineStyle[] {
  const seen = new Map<string, number>()
  return places.map((place) => {
    const { color } = styleOf(place)
    const n_before = seen.get(color) ?? 0
    seen.set(color, n_before + 1)
    return styleOf(place, n_before)
  })
}

export function rgb(color: string): Rgb {
  return [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16)) as Rgb
}

/** The colour for a value from 0 to 1; NaN is missing. */
export function mapped(stops: readonly string[], value: number): Rgb {
  if (Number.isNaN(value)) return MISSING
  const at = Math.min(1, Math.max(0, value)) * (stops.length - 1)
  const low = Math.min(stops.length - 2, Math.floor(at))
  const [a, b] = [rgb(stops[low]!), rgb(stops[low + 1]!)]
  return a.map((channel, i) => Math.round(channel + (b[i]! - channel) * (at - low))) as Rgb
}
