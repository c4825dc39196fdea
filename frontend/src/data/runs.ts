// The runs: the list from the server, the filtered list, and the visible runs. How they look is in `looks.ts`.

import { computed, signal } from '@preact/signals'
import { at, state, update } from '../state/state'
import { visible } from '../views/visible'
import { get } from './api'
import { isPutAway, parseFilter, valueOf } from './filter'
import { compareValues, grouped, keysOfGroup, nameOfGroup } from './groups'
import { reuseEqual } from './reuse'
import { namesApart } from './names'
import { Socket } from './socket'
import type { Run } from './types'

/** How many runs of the list are drawn while the reader has not chosen any: the newest, or the best in its order. */
export const N_SHOWN_AT_FIRST = 10
/** In groups they are a line each, and a mean of only some of its runs would mislead. */
const N_GROUPED_AT_FIRST = 100
export const ALL = '*'

/** All runs that the server knows. */
export const allRuns = signal<Run[] | null>(null)
/** The runs of the project that the reader chose, or all. */
export const runs = computed(() => (at.project.value ? (allRuns.value?.filter((run) => run.project === at.project.value) ?? null) : allRuns.value))
/** The projects that have runs, and the chosen one. */
export const projects = computed(() => [...new Set([...(allRuns.value ?? []).map((run) => run.project), at.project.value])].filter(Boolean).sort((a, b) => a.localeCompare(b, undefined, { numeric: true })))
export const setProject = (project: string): void => update({ project, runs: null, hide: [], run: '' })
/** Why the list may be out of date, or empty. */
export const outOfDate = signal('')
export const socket = new Socket(takeRuns, takeChanged)
/** While the socket is lost, this often the list is fetched instead: many proxies let requests through, but no sockets. */
const FALLBACK_MS = 10_000

export async function loadRuns(): Promise<void> {
  const { runs, problem } = await get<{ runs: Run[]; problem?: string }>('runs')
  takeRuns(runs, problem)
}

function takeRuns(fresh: Run[], problem = ''): void {
  outOfDate.value = problem
  const [old, now] = [allRuns.peek(), reuseEqual(allRuns.peek(), fresh)]
  for (const run of now) seen.set(run.key, run)
  if (now.length !== old?.length || now.some((run, i) => run !== old[i])) allRuns.value = now
}

export function takeChanged(changed: Run[]): void {
  const fresh = new Map(changed.map((run) => [run.key, run]))
  const old = allRuns.peek()
  if (old && changed.length) takeRuns(old.map((run) => fresh.get(run.key) ?? run), outOfDate.peek())
}

/** Keep the list up to date without the socket, too. */
export function followRuns(): void {
  setInterval(() => {
    const lost = !['off', 'open', 'refused'].includes(socket.link.peek().kind)
    if (lost && !document.hidden) loadRuns().catch(() => undefined)
  }, FALLBACK_MS)
}

// Those too that have left the list: a run without files does so with its end, and its lines may still be drawn.
const seen = new Map<string, Run>()

/** What was last known of a run. */
export const knownRun = (key: string): Run | undefined => byKey.value.get(key) ?? seen.get(key)

export const byKey = computed(() => new Map((allRuns.value ?? []).map((run) => [run.key, run])))

export const live = computed(() => (runs.value ?? []).filter((run) => run.live))
export const filter = computed(() => parseFilter(at.filter.value))

const what = computed(() => (runs.value ?? []).flatMap((run) => [run.name, run.project, run.started, run.config]))
let [named, apart] = [[] as unknown[], new Map<string, string>()]
const aparts = computed(() => {
  const now = what.value
  if (now.length !== named.length || now.some((one, i) => one !== named[i])) [named, apart] = [now, namesApart(runs.value ?? [])]
  return apart
})

/** The addition that distinguishes a run from others of its name, or empty. */
export const apartOf = (key: string): string => aparts.value.get(key) ?? ''

/** The label of a run: its name, and what distinguishes it from others of that name. */
export function labelOf(key: string): string {
  return visible([knownRun(key)?.name ?? key, apartOf(key)].filter(Boolean).join(' '))
}

/** The filtered runs, pinned ones first, in the order of the list. */
export const filtered = computed(() => {
  const pinned = new Set(at.pin.value)
  const sorts = at.sort.value.split('|').filter(Boolean)
  const asked = new Set(filter.value.keys.map(({ key }) => key))
  const left = (runs.value ?? []).filter((run) => !isPutAway(run, asked) && (pinned.has(run.key) || filter.value.matches(run)))
  return left.sort((a, b) => Number(pinned.has(b.key)) - Number(pinned.has(a.key)) || compareBy(sorts, a, b))
})

function compareBy(sorts: readonly string[], a: Run, b: Run): number {
  for (const sort of sorts) {
    const key = sort.replace(/^-/, '')
    const order = compareValues(valueOf(a, key), valueOf(b, key), sort.startsWith('-'))
    if (order) return order
  }
  return a.key < b.key ? -1 : 1
}

/** The runs that charts draw. */
export const shown = computed(() => {
  const chosen = at.runs.value
  const hidden = new Set(at.hide.value)
  if (chosen === null) return filtered.value.slice(0, groupKeys.value.length ? N_GROUPED_AT_FIRST : N_SHOWN_AT_FIRST).filter((run) => !hidden.has(run.key))
  if (chosen[0] === ALL) return filtered.value.filter((run) => !hidden.has(run.key))
  const wanted = new Set(chosen)
  return filtered.value.filter((run) => wanted.has(run.key))
})

export const shownKeys = computed(() => new Set(shown.value.map((run) => run.key)))

export function setShown(keys: string[], visible: boolean): void {
  const change = new Set(keys)
  if (at.runs.peek()?.[0] === ALL) {
    const hide = state.peek().hide.filter((key) => !change.has(key))
    return update({ hide: visible ? hide : [...hide, ...keys] })
  }
  const rest = shown.peek().map((run) => run.key).filter((key) => !change.has(key))
  update({ runs: visible ? [...rest, ...keys] : rest, hide: [] })
}

export const showOnly = (keys: string[]): void => update({ runs: keys, hide: [] })
export const showAll = (): void => update({ runs: [ALL], hide: [] })
export const showNone = (): void => update({ runs: [], hide: [] })

/** The run that others are compared with: of several, the newest. */
export const baseline = computed(() => (runs.value ?? []).filter(({ annotations: one }) => one.baseline && !one.deleted).sort((a, b) => (b.started ?? 0) - (a.started ?? 0))[0] ?? null)

/** The keys by which runs are grouped; none if they are not. */
export const groupKeys = computed(() => keysOfGroup(at.group.value, runs.value ?? []))

/** The name of a run's group. */
export const groupOf = (run: Run): string => nameOfGroup(run, groupKeys.value)

/** The groups of what the filter leaves, in their order. */
export const groups = computed(() => (groupKeys.value.length ? grouped(filtered.value, groupKeys.value, at.sort.value.split('|').filter(Boolean)) : null))
