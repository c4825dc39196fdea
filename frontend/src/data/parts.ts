// Many requests, a few at a time, whose answers are taken in together, so that a thousand runs are not a thousand changes.

const TAKE_IN_MS = 400

/** Return a function that fetches items, and resolves when all of these have come; one that hangs holds up no others.
 *
 * @param takeIn Called with the answers that have come: of all items that were asked for, or after a while.
 */
export function fetchInParts<Item, Answer>(n_at_once: number, fetch: (item: Item) => Promise<Answer>, takeIn: (answers: Answer[]) => void): (items: readonly Item[]) => Promise<void> {
  const queue: { item: Item; done: () => void }[] = []
  const come: Answer[] = []
  let [n_busy, timer] = [0, 0]
  const handOver = () => {
    clearTimeout(timer)
    timer = 0
    if (come.length) takeIn(come.splice(0))
  }
  const work = async () => {
    n_busy++
    for (let next = queue.shift(); next; next = queue.shift()) {
      come.push(await fetch(next.item))
      next.done()
      timer ||= window.setTimeout(handOver, TAKE_IN_MS)
    }
    n_busy--
    if (n_busy === 0) handOver()
  }
  return async (items) => {
    const all = items.map((item) => new Promise<void>((done) => queue.push({ item, done })))
    while (queue.length && n_busy < n_at_once) void work()
    await Promise.all(all)
  }
}
