// The modules of a model, from the names of its tensors: "encoder/layer0/kernel", "decoder.weight".

export interface Branch {
  /** The name up to here, and the part of it that this row shows. */
  path: string
  label: string
  depth: number
  /** Which of the names this row is; null for a module, which holds `n`. */
  place: number | null
  n: number
}

const PARTS = /(?<=[/.])/

/** The rows of the tree, in natural order, without what lies in modules that are shut. A module with one child is no row. */
export function treeOf(names: readonly string[], shut: ReadonlySet<string> = new Set()): Branch[] {
  const order = new Intl.Collator('en', { numeric: true })
  const places = names.map((_, i) => i).sort((a, b) => order.compare(names[a]!, names[b]!) || a - b)
  const rows: Branch[] = []
  grow(places, '', 0)
  return rows

  function grow(inside: readonly number[], path: string, depth: number): void {
    for (const group of grouped(inside, path)) {
      const common = commonPath(group)
      if (group.length === 1 || common.length <= path.length) {
        for (const place of group) rows.push({ path: names[place]!, label: names[place]!.slice(path.length), depth, place, n: 1 })
        continue
      }
      rows.push({ path: common, label: common.slice(path.length), depth, place: null, n: group.length })
      if (!shut.has(common)) grow(group, common, depth + 1)
    }
  }

  /** Names that go on alike after `path`, together. */
  function grouped(inside: readonly number[], path: string): number[][] {
    const groups = new Map<string, number[]>()
    for (const i of inside) {
      const head = names[i]!.slice(path.length).split(PARTS)[0] ?? ''
      groups.set(head, [...(groups.get(head) ?? []), i])
    }
    return [...groups.values()]
  }

  function commonPath(group: readonly number[]): string {
    const [first, ...rest] = group.map((i) => names[i]!.split(PARTS))
    let n = 0
    while (n < first!.length - 1 && rest.every((parts) => parts.length > n + 1 && parts[n] === first![n])) n++
    return first!.slice(0, n).join('')
  }
}
