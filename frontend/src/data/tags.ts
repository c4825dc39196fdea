// The tags of runs, and what the runs that are drawn have of them.

import { computed } from '@preact/signals'
import { useMemo } from 'preact/hooks'
import { versionOf } from './growth'
import { RunResource, useResource, type Shown } from './runResource'
import { shown, shownKeys } from './runs'
import type { Run, Tag } from './types'

/** A chart of several tags, such as one of TensorBoard's custom scalars. */
export interface ChartLayout {
  category: string
  title: string
  tags: string[]
}

interface Kept {
  tags: ReadonlyMap<string, Tag>
  /** The same array, and the same charts, until there are others. */
  scalars: readonly string[]
  charts: readonly ChartLayout[]
}

const equal = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other)

/** A run that ended without a directory recorded nothing. A reply has all tags, which seldom change. */
export const runTags = new RunResource<{ tags: Tag[]; charts: ChartLayout[] }, Kept>({
  path: '/tags',
  news: (run) => (run.live || run.directory !== '' ? versionOf(run) : null),
  keep: ({ tags, charts }, before) => {
    const scalars = tags.filter(({ type }) => type === 'scalar').map(({ name }) => name)
    return {
      tags: new Map(tags.map((tag) => [tag.name, tag])),
      scalars: before && equal(before.scalars, scalars) ? before.scalars : scalars,
      charts: before && equal(before.charts, charts) ? before.charts : charts,
    }
  },
  n_at_once: 6,
  rest_ms: 2_000,
  drawn: { rest_ms: 2_000 },
})

const scalars = runTags.each((kept) => kept.scalars)
const layouts = runTags.each(({ charts }) => charts)
const tagsOf = (run: string): readonly Tag[] => [...(runTags.of(run)?.tags.values() ?? [])]

/** The tags of several runs, by their runs. */
export function useTagsOf(runs: readonly string[]): Shown<readonly Tag[]> {
  const { values, ...rest } = useResource(runTags, runs)
  return { ...rest, values: useMemo(() => new Map([...values].map(([run, { tags }]) => [run, [...tags.values()]])), [values]) }
}

export const tagsLoading = computed(() => shown.value.some((run) => runTags.awaits(run)))

/** The facts about a tag of a run. */
export const tagOf = (run: string, tag: string): Tag | undefined => runTags.of(run)?.tags.get(tag)

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
    if (runTags.awaits(run)) return undefined
    if (tagsOf(run.key).some(isShownAsTensor)) return run
  }
  return null
})

/** The statistics of all tensors of the visible runs. */
export const statisticTags = computed(() => {
  const tensors = new Set([...shownKeys.value].flatMap((key) => tagsOf(key).filter(isTensor).map(({ tag }) => tag)))
  return [...tensors].sort(order.compare).flatMap((tag) => STATISTICS.map((name) => `${name}(${tag})`))
})

/** The visible runs that have a series of numbers: a tag, or a statistic of tensors. */
export function runsWith(tag: string): ReadonlySet<string> | undefined {
  const found = scalarTags.value.get(tag)
  const tensor = STATISTIC.exec(tag)?.[1]
  if (found || tensor === undefined) return found
  const has = (one: Tag) => isTensor(one) && (one.tag === tensor || one.name === tensor)
  return new Set([...shownKeys.value].filter((key) => tagsOf(key).some(has)))
}

/** Whether a series is of what the machine does, or of what the program prints: its own steps are seconds, as `storage/run_file.is_of_machine` says. */
export const isOfMachine = (tag: string): boolean => /^(system|console)\./.test(tag)

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
