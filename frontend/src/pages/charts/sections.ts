// Tags by their prefix: "train/loss" and "train.loss" belong to "train". And the grid of charts that comes of them.

export interface Section {
  name: string
  tags: string[]
}

export const NO_PREFIX = 'other'
/** What the run itself records of its machine comes behind what its program records. */
const LAST = [NO_PREFIX, 'system']

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
  return sections.sort((a, b) => LAST.indexOf(a.name) - LAST.indexOf(b.name))
}

/** A search for tags: a regular expression, or plain text, such as "norm(w)". */
export function tagSearch(text: string): { matches: (tag: string) => boolean; problem: string | null } {
  if (!text) return { matches: () => true, problem: null }
  const wanted = text.toLowerCase()
  try {
    const pattern = new RegExp(text, 'i')
    return { matches: (tag) => pattern.test(tag) || tag.toLowerCase().includes(wanted), problem: null }
  } catch (error) {
    const problem = (error as Error).message.replace(/^Invalid regular expression: /, '')
    return { matches: (tag) => tag.toLowerCase().includes(wanted), problem: `Searched as plain text: ${problem}` }
  }
}

/** One chart: a tag, or several that share it under a name of the reader's own. */
export interface Spec {
  id: string
  title: string
  tags: readonly string[]
  own: boolean
}

export const specOf = (tag: string, title = tag): Spec => ({ id: tag, title, tags: [tag], own: false })

/** The reader's own charts, from the lists in the address: a name, then its tags. */
export const ownSpecs = (lists: readonly string[][]): Spec[] => lists.map(([name = '', ...tags]) => ({ id: `own ${name}`, title: name, tags, own: true }))

/** Charts that the files of runs ask for, under the name of their section. */
export interface Given {
  name: string
  charts: Spec[]
}

export const givenSpecs = (wanted: readonly { name: string; charts: readonly { title: string; tags: string[] }[] }[]): Given[] =>
  wanted.map(({ name, charts }) => ({ name, charts: charts.map(({ title, tags }) => ({ id: `given ${name} ${title}`, title, tags, own: false })) }))

export type GridRow = { kind: 'head'; name: string; n: number; pinned: boolean } | { kind: 'charts'; section: string; charts: Spec[] }

/** The grid as rows of at most `columns` charts, each section under its head; shut sections keep only that. */
export function gridRows(own: Spec[], pinned: string[], sections: Section[], shut: ReadonlySet<string>, columns: number, given: readonly Given[] = []): GridRow[] {
  const rows: GridRow[] = []
  const add = (name: string, charts: Spec[], isPinned: boolean) => {
    if (charts.length === 0) return
    rows.push({ kind: 'head', name, n: charts.length, pinned: isPinned })
    if (shut.has(name)) return
    for (let i = 0; i < charts.length; i += columns) rows.push({ kind: 'charts', section: name, charts: charts.slice(i, i + columns) })
  }
  add(OWN, own, true)
  add(PINNED, pinned.map((tag) => specOf(tag)), true)
  for (const { name, charts } of given) add(name, charts, false)
  for (const { name, tags } of sections) add(name, tags.map((tag) => specOf(tag, titleOf(tag, name))), false)
  return rows
}

const titleOf = (tag: string, section: string): string => (section !== NO_PREFIX && tag.startsWith(section) && tag.length > section.length + 1 && prefixOf(tag) === section ? tag.slice(section.length + 1) : tag)

export const OWN = 'Own charts'
export const PINNED = 'Pinned'
/** Search results form one section, whatever their prefixes. */
export const FOUND = 'Found'

/** Tags that differ only in their prefix: candidates for a chart together, by the rest of their names. */
export function counterparts(tags: Iterable<string>): Map<string, string[]> {
  const found = new Map<string, string[]>()
  for (const tag of tags) {
    const prefix = prefixOf(tag)
    if (prefix === NO_PREFIX) continue
    const rest = tag.slice(prefix.length + 1)
    found.set(rest, [...(found.get(rest) ?? []), tag])
  }
  return new Map([...found].filter(([, same]) => same.length > 1))
}

/** The lists with one chart put in the place of another, dropped, or added; names stay different. */
export function withChart(lists: readonly string[][], was: string | null, now: { name: string; tags: string[] } | null): string[][] {
  const others = lists.filter(([name]) => name !== was).map(([name]) => name)
  let name = now?.name.trim() ?? ''
  for (let i = 2; others.includes(name); i++) name = `${now!.name.trim()} ${i}`
  const list = now ? [[name, ...now.tags]] : []
  return was === null ? [...lists, ...list] : lists.flatMap((one) => (one[0] === was ? list : [one]))
}
