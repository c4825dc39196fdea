// Tags by their prefix: "train/loss" and "train.loss" belong to "train". And the grid of charts that comes of them.

import { ordered } from './ordered'

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
  /** The facet that it is of, where charts are divided. */
  facet?: string
}

/** What tells a chart from all others in the address. */
export const focusOf = ({ id, facet }: Spec): string => (facet ? `${id}\n${facet}` : id)

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

/** A chart at its place in a row of the grid. */
export interface Cell {
  spec: Spec
  section: string
  column: number
  row: number
  wide: number
  tall: number
}

export interface Head {
  name: string
  n: number
  pinned: boolean
  column: number
  /** Columns that it takes. */
  span: number
}

export type GridRow = { kind: 'heads'; heads: Head[] } | { kind: 'charts'; tall: number; cells: Cell[] }

/** A section as it is drawn: its charts in order, and whether they are shut away. */
export interface Shown {
  name: string
  charts: readonly Spec[]
  pinned: boolean
  shut: boolean
}

/** The sections of the page in the reader's order: own charts, pinned ones, those that files ask for, then the tags by prefix. */
export function shownSections(own: readonly Spec[], pinned: readonly string[], sections: readonly Section[], shut: ReadonlySet<string>, order: readonly string[][], given: readonly Given[] = []): Shown[] {
  const orderOf = new Map(order.map(([name, ...ids]) => [name, ids]))
  const all = [
    { name: OWN, charts: [...own], pinned: true },
    { name: PINNED, charts: pinned.map((tag) => specOf(tag)), pinned: true },
    ...given.map((one) => ({ ...one, pinned: false })),
    ...sections.map(({ name, tags }) => ({ name, charts: ordered(tags.map((tag) => specOf(tag, titleOf(tag, name))), orderOf.get(name) ?? [], ({ id }) => id), pinned: false })),
  ]
  return all.filter(({ charts }) => charts.length).map((one) => ({ ...one, shut: shut.has(one.name) }))
}

/** Each chart once for each facet that has a line in it. */
export const divided = (sections: readonly Shown[], facets: readonly string[], has: (tags: readonly string[], facet: string) => boolean): Shown[] =>
  facets.length ? sections.map((one) => ({ ...one, charts: one.charts.flatMap((spec) => facets.flatMap((facet) => (has(spec.tags, facet) ? [{ ...spec, facet }] : []))) })).filter(({ charts }) => charts.length) : [...sections]

type Size = (id: string) => { wide?: number; tall?: number }

/** The rows of the grid. Sections that fit beside the one before share its row, so that many small ones fill a wide page. */
export function gridRows(sections: readonly Shown[], columns: number, sizeOf: Size = () => ({})): GridRow[] {
  const rows: GridRow[] = []
  let open: { heads: Head[]; cells: Cell[]; used: number; shut: boolean } | null = null
  for (const { name, charts, pinned, shut } of sections) {
    const strips = shut ? [] : stripsOf(charts, name, columns, sizeOf)
    const [first] = strips
    const small = !pinned && strips.length <= 1 && (first?.tall ?? 1) === 1
    const span = small ? Math.max(1, ...(first?.cells ?? []).map(({ column, wide }) => column + wide)) : columns
    if (small && open && open.shut === shut && open.used + span <= columns) {
      open.heads.push({ name, n: charts.length, pinned, column: open.used, span })
      for (const cell of first?.cells ?? []) open.cells.push({ ...cell, column: cell.column + open.used })
      open.used += span
      continue
    }
    const heads = [{ name, n: charts.length, pinned, column: 0, span }]
    rows.push({ kind: 'heads', heads }, ...strips)
    open = small ? { heads, cells: first?.cells ?? [], used: span, shut } : null
  }
  return rows
}

/** How many columns the widest row fills. */
export const widest = (rows: readonly GridRow[]): number => Math.max(1, ...rows.flatMap((row) => (row.kind === 'charts' ? row.cells.map(({ column, wide }) => column + wide) : [])))

/** Charts in rows of columns; a chart of double height makes its row one of two, which others fill beside it. */
function stripsOf(charts: readonly Spec[], section: string, columns: number, sizeOf: Size): (GridRow & { kind: 'charts' })[] {
  const items = charts.map((spec) => {
    const { wide = 1, tall = 1 } = sizeOf(spec.id)
    return { spec, section, wide: wide === 0 ? columns : Math.min(columns, wide), tall: Math.max(1, tall) }
  })
  const strips: (GridRow & { kind: 'charts' })[] = []
  for (let i = 0; i < items.length; ) {
    let cells = placed(items.slice(i, i + 2 * columns), columns, 1)
    let tall = 1
    const next = items[i + cells.length]
    if (next && next.tall > 1 && cells.reduce((sum, { wide }) => sum + wide, next.wide) <= columns) [cells, tall] = [placed(items.slice(i, i + 2 * columns), columns, 2), 2]
    strips.push({ kind: 'charts', tall, cells })
    i += cells.length
  }
  return strips
}

/** As many charts as fit into some rows, each at the first place that is free. */
function placed(items: readonly Omit<Cell, 'column' | 'row'>[], columns: number, n_rows: number): Cell[] {
  const taken = new Set<number>()
  const cells: Cell[] = []
  const spots = ({ wide, tall }: Omit<Cell, 'column' | 'row'>, column: number, row: number) => Array.from({ length: wide * tall }, (_, k) => (row + Math.floor(k / wide)) * columns + column + (k % wide))
  for (const item of items) {
    let found = false
    for (let row = 0; row + item.tall <= n_rows && !found; row++) {
      for (let column = 0; column + item.wide <= columns && !found; column++) {
        const wanted = spots(item, column, row)
        if (wanted.some((spot) => taken.has(spot))) continue
        wanted.forEach((spot) => taken.add(spot))
        cells.push({ ...item, column, row })
        found = true
      }
    }
    if (!found) break
  }
  return cells
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
