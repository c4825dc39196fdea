// Tags by their prefix: "train/loss" and "train.loss" belong to "train".

export interface Section {
  name: string
  tags: string[]
}

export const NO_PREFIX = 'other'

export function prefixOf(tag: string): string {
  return /^([^/.(\s]+)[/.]./.exec(tag)?.[1] ?? NO_PREFIX
}

export function sectionsOf(tags: Iterable<string>): Section[] {
  const found = new Map<string, string[]>()
  for (const tag of tags) {
    const name = prefixOf(tag)
    const members = found.get(name)
    if (members) members.push(tag)
    else found.set(name, [tag])
  }
  const sections = Array.from(found, ([name, members]) => ({ name, tags: members }))
  return sections.sort((a, b) => Number(a.name === NO_PREFIX) - Number(b.name === NO_PREFIX))
}

/** A search for tags: a regular expression, or, while it is none, plain text. */
export function tagSearch(text: string): { matches: (tag: string) => boolean; problem: string | null } {
  if (!text) return { matches: () => true, problem: null }
  try {
    const pattern = new RegExp(text, 'i')
    return { matches: (tag) => pattern.test(tag), problem: null }
  } catch (error) {
    const wanted = text.toLowerCase()
    const problem = (error as Error).message.replace(/^Invalid regular expression: /, '')
    return { matches: (tag) => tag.toLowerCase().includes(wanted), problem: `Searched as plain text: ${problem}` }
  }
}

export type GridRow = { kind: 'head'; name: string; n: number; pinned: boolean } | { kind: 'charts'; section: string; tags: string[] }

/** The grid as rows of at most `columns` charts, each section under its head; shut sections keep only that. */
export function gridRows(pinned: string[], sections: Section[], shut: ReadonlySet<string>, columns: number): GridRow[] {
  const rows: GridRow[] = []
  const add = (name: string, tags: string[], isPinned: boolean) => {
    rows.push({ kind: 'head', name, n: tags.length, pinned: isPinned })
    if (shut.has(name)) return
    for (let i = 0; i < tags.length; i += columns) rows.push({ kind: 'charts', section: name, tags: tags.slice(i, i + columns) })
  }
  if (pinned.length) add(PINNED, pinned, true)
  for (const { name, tags } of sections) add(name, tags, false)
  return rows
}

export const PINNED = 'Pinned'
