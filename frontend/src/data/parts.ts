// Many requests, a few at a time, whose answers are taken in together, so that a thousand runs are not a thousand changes.

const TAKE_IN_MS = 400

/** Work through a queue, which may grow meanwhile, and hand over the results in parts. */
export async function fetchInParts<Item, Answer>(queue: Item[], n_at_once: number, fetch: (item: Item) => Promise<Answer>, takeIn: (answers: Answer[]) => void): Promise<void> {
  const come: Answer[] = []
  let since = performance.now()
  const one = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      come.push(await fetch(item))
      if (performance.now() - since > TAKE_IN_MS) handOver()
    }
  }
  const handOver = () => {
    since = performance.now()
    if (come.length) takeIn(come.splice(0))
  }
  await Promise.all(Array.from({ length: n_at_once }, one))
  handOver()
}
