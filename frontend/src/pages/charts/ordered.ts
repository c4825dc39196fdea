// The reader's order of charts and sections.

/** Some names in the reader's order; those that it lacks come behind, as they were. */
export function ordered<T>(items: readonly T[], order: readonly string[], nameOf: (item: T) => string): T[] {
  if (!order.length) return [...items]
  const rank = new Map(order.map((name, i) => [name, i]))
  const at = (item: T) => rank.get(nameOf(item)) ?? Infinity
  return items.map((item, i) => ({ item, i })).sort((a, b) => (at(a.item) === at(b.item) ? a.i - b.i : at(a.item) - at(b.item))).map(({ item }) => item)
}

/** The names with one of them at another place. */
export function movedTo(names: readonly string[], name: string, place: number): string[] {
  const others = names.filter((one) => one !== name)
  const at = Math.min(others.length, Math.max(0, place))
  return [...others.slice(0, at), name, ...others.slice(at)]
}
