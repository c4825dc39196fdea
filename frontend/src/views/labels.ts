// What axes are called; the same names as `sightglass.views.labels`.

const AXES = ['x', 'y', 'z'] as const

export type AxisNames = readonly [x: string, y: string, z: string]

/** The names of x, y and z in the queries' tuples, if all streams have the same ones; a run's name comes before " · ". */
export function axesOf(labels: readonly string[]): AxisNames {
  const found = labels.map((label) => axisNames(tagOf(label)))
  return found.length && found.every((names) => String(names) === String(found[0])) ? found[0]! : AXES
}

/** What an axis is called, on which several lines are read; those of many runs have one tag. */
export function sharedName(labels: readonly string[]): string {
  const tags = new Set(labels.map(tagOf))
  return [...(tags.size < labels.length ? tags : labels)].join(', ')
}

const tagOf = (label: string): string => label.split(' · ').at(-1)!

/** The names of x, y and z in the tag of a stream of tuples, without the event that all of them share. */
export function axisNames(tag: string): AxisNames {
  let parts = partsOf(tag)
  if (parts.length === 1 && tag.startsWith('(') && tag.endsWith(')')) parts = partsOf(tag.slice(1, -1))
  if (parts.length !== 2 && parts.length !== 3) return AXES
  const events = new Set(parts.flatMap((part) => [...part.matchAll(/(?<![\w.])([A-Za-z_]\w*)\./g)].map(([, event]) => event!)))
  if (events.size === 1) parts = parts.map((part) => part.replace(new RegExp(`(?<![\\w.])${[...events][0]}\\.`, 'g'), ''))
  return [parts[0]!, parts[1]!, parts[2] ?? 'z']
}

/** Split at the commas that are outside of brackets and quotes. */
function partsOf(text: string): string[] {
  const bare = text.replace(/'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"/g, (found) => '_'.repeat(found.length))
  const parts: string[] = []
  let [depth, start] = [0, 0]
  for (let i = 0; i < bare.length; i++) {
    if ('([{'.includes(bare[i]!)) depth++
    else if (')]}'.includes(bare[i]!)) depth--
    else if (bare[i] === ',' && depth === 0) {
      parts.push(text.slice(start, i).trim())
      start = i + 1
    }
  }
  return [...parts, text.slice(start).trim()]
}
