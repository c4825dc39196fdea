// The tags of the runs that are drawn: fetched once a run, and again now and then while the run lives.

import { computed, effect, signal } from '@preact/signals'
import { get, messageOf, runPath } from './api'
import { byKey, shown } from './runs'
import type { Tag } from './types'

const REFRESH_MS = 5_000

const known = signal<ReadonlyMap<string, Tag[]>>(new Map())
export const tagProblems = signal<ReadonlyMap<string, string>>(new Map())
const asked = new Set<string>()

async function fetchTags(key: string): Promise<void> {
  asked.add(key)
  try {
    const { tags } = await get<{ tags: Tag[] }>(runPath(key, '/tags'))
    known.value = new Map(known.peek()).set(key, tags)
    if (tagProblems.peek().has(key)) {
      const rest = new Map(tagProblems.peek())
      rest.delete(key)
      tagProblems.value = rest
    }
  } catch (error) {
    tagProblems.value = new Map(tagProblems.peek()).set(key, messageOf(error))
  }
}

/** Keep the tags of what is drawn up to date. */
export function followTags(): void {
  const queue: string[] = []
  let busy = false
  const drain = async () => {
    if (busy) return
    busy = true
    while (queue.length) await Promise.all(queue.splice(0, 4).map(fetchTags))
    busy = false
  }
  effect(() => {
    for (const run of shown.value) {
      if (asked.has(run.key)) continue
      asked.add(run.key)
      queue.push(run.key)
    }
    void drain()
  })
  setInterval(() => {
    if (document.hidden || queue.length) return
    const again = (key: string) => byKey.peek().get(key)?.live || tagProblems.peek().has(key)
    queue.push(...shown.peek().map((run) => run.key).filter(again))
    void drain()
  }, REFRESH_MS)
}

export const tagsLoading = computed(() =>
  shown.value.some((run) => !known.value.has(run.key) && !tagProblems.value.has(run.key)),
)

/** Scalar tags of what is drawn, each with the runs that have it. */
export const scalarTags = computed(() => {
  const found = new Map<string, Set<string>>()
  for (const { key } of shown.value) {
    for (const { tag, type } of known.value.get(key) ?? []) {
      if (type !== 'scalar') continue
      const having = found.get(tag)
      if (having) having.add(key)
      else found.set(tag, new Set([key]))
    }
  }
  return new Map([...found].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true })))
})
