// The tags of the runs that are drawn, fetched again for those that grow.

import { batch, computed, signal } from '@preact/signals'
import { get, messageOf, runPath } from './api'
import { followShown, versionOf } from './growth'
import { shown, shownKeys } from './runs'
import type { Run, Tag } from './types'

/** A reply has all tags, which seldom change, so it rests between two. */
const REST_MS = 2_000
const N_AT_ONCE = 6

const known = signal<ReadonlyMap<string, ReadonlyMap<string, Tag>>>(new Map())
/** The scalars of each run: the same array until there is another. */
const scalars = signal<ReadonlyMap<string, readonly string[]>>(new Map())
/** The charts of several tags that the files of each run ask for. */
const layouts = signal<ReadonlyMap<string, readonly ChartLayout[]>>(new Map())
export const tagProblems = signal<ReadonlyMap<string, string>>(new Map())

/** A chart of several tags, such as one of TensorBoard's custom scalars. */
export interface ChartLayout {
  category: string
  title: string
  tags: string[]
}

type Answer = { key: string; tags: Tag[]; charts: ChartLayout[] } | { key: string; problem: string }

async function fetchTags(key: string): Promise<Answer> {
  try {
    return { key, ...(await get<{ tags: Tag[]; charts: ChartLayout[] }>(runPath(key, '/tags'))) }
  } catch (error) {
    return { key, problem: messageOf(error) }
  }
}

/** Store many replies at once: values that depend on the tags are recomputed less often. */
function takeIn(answers: readonly Answer[]): void {
  const [tagsOf, scalarsOf, problems] = [new Map(known.peek()), new Map(scalars.peek()), new Map(tagProblems.peek())]
  const layoutsOf = new Map(layouts.peek())
  let [changed, turned, laid] = [false, false, false]
  for (const answer of answers) {
    const { key } = answer
    if ('problem' in answer) {
      turned ||= problems.get(key) !== answer.problem
      problems.set(key, answer.problem)
      continue
    }
    turned = problems.delete(key) || turned
    tagsOf.set(key, new Map(answer.tags.map((tag) => [tag.name, tag])))
    if (JSON.stringify(layoutsOf.get(key) ?? []) !== JSON.stringify(answer.charts)) {
      layoutsOf.set(key, answer.charts)
      laid = true
    }
    const now = answer.tags.filter(({ type }) => type === 'scalar').map(({ name }) => name)
    const before = scalarsOf.get(key)
    if (before?.length === now.length && before.every((tag, i) => tag === now[i])) continue
    scalarsOf.set(key, now)
    changed = true
  }
  batch(() => {
    known.value = tagsOf
    if (changed) scalars.value = scalarsOf
    if (laid) layouts.value = layoutsOf
    if (turned) tagProblems.value = problems
  })
}

/** Whether a run may have tags: one that ended without a directory recorded nothing. */
const keeps = (run: Run): boolean => run.live || run.directory !== ''

/** Keep the tags of visible runs up to date. */
export const followTags = (): void =>
  followShown({ news: (run) => (keeps(run) ? versionOf(run) : null), fetch: fetchTags, takeIn, n_at_once: N_AT_ONCE, rest_ms: REST_MS })

export const tagsLoading = computed(() =>
  shown.value.some((run) => keeps(run) && !known.value.has(run.key) && !tagProblems.value.has(run.key)),
)

/** The facts about a tag of a run. */
export const tagOf = (run: string, tag: string): Tag | undefined => known.value.get(run)?.get(tag)

/** Statistics of tensors over their steps, which are series as well: "norm(w)". */
export const STATISTICS = ['norm', 'mean', 'std', 'min', 'max', 'n_zero', 'n_nan', 'n_posinf', 'n_neginf'] as const
const STATISTIC = new RegExp(`^(?:${STATISTICS.join('|')})\\((.+)\\)$`, 's')

/** One of the series of a run: by its name, or else by its tag alone. */
export const namedTag = <T extends Tag>(tags: readonly T[], name: string): T | undefined => tags.find((one) => one.name === name) ?? tags.find((one) => one.tag === name)

/** Whether two series, mostly of two runs, are of one tag and one kind. */
export const isAlike = (one: Tag, other: Tag): boolean => one.tag === other.tag && one.type === other.type

export const isTensor = (tag: Tag | undefined): boolean => (tag?.type === 'tensor' && tag.dtype !== 'str') || tag?.type === 'histogram'

/** Whether the page Tensors shows it: an array of strings has a table, too, but no statistics. */
export const isShownAsTensor = (tag: Tag): boolean => isTensor(tag) || tag.type === 'tensor'

/** The newest visible run that has tensors; null if none has, undefined while it is not known. */
export const newestWithTensors = computed((): Run | null | undefined => {
  for (const run of [...shown.value].sort((a, b) => (b.started ?? 0) - (a.started ?? 0))) {
    const tags = known.value.get(run.key)
    if (!tags && keeps(run) && !tagProblems.value.has(run.key)) return undefined
    if ([...(tags?.values() ?? [])].some(isShownAsTensor)) return run
  }
  return null
})

/** The statistics of all tensors of the visible runs. */
export const statisticTags = computed(() => {
  const tensors = new Set([...shownKeys.value].flatMap((key) => [...(known.value.get(key)?.values() ?? [])].filter(isTensor).map(({ tag }) => tag)))
  return [...tensors].sort(order.compare).flatMap((tag) => STATISTICS.map((name) => `${name}(${tag})`))
})

/** The visible runs that have a series of numbers: a tag, or a statistic of tensors. */
export function runsWith(tag: string): ReadonlySet<string> | undefined {
  const found = scalarTags.value.get(tag)
  const tensor = STATISTIC.exec(tag)?.[1]
  if (found || tensor === undefined) return found
  const has = (one: Tag) => isTensor(one) && (one.tag === tensor || one.name === tensor)
  return new Set([...shownKeys.value].filter((key) => [...(known.value.get(key)?.values() ?? [])].some(has)))
}

const order = new Intl.Collator(undefined, { numeric: true })

/** The scalar tags of the visible runs, each with the runs that have it. */
export const scalarTags = computed(() => {
  const found = new Map<string, Set<string>>()
  for (const key of shownKeys.value) {
    for (const tag of scalars.value.get(key) ?? []) {
      const having = found.get(tag)
      if (having) having.add(key)
      else found.set(tag, new Set([key]))
    }
  }
  return new Map([...found].sort(([a], [b]) => order.compare(a, b)))
})

/** The charts that the files of the visible runs ask for, by category; those of one title share their tags. */
export const wantedCharts = computed(() => {
  const found = new Map<string, Map<string, Set<string>>>()
  for (const key of shownKeys.value) {
    for (const { category, title, tags } of layouts.value.get(key) ?? []) {
      const charts = found.get(category) ?? new Map<string, Set<string>>()
      found.set(category, charts.set(title, new Set([...(charts.get(title) ?? []), ...tags])))
    }
  }
  return [...found].map(([name, charts]) => ({ name, charts: [...charts].map(([title, tags]) => ({ title, tags: [...tags] })) }))
})
