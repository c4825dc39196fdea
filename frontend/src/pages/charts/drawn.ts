// The lines that every chart draws: one for each run or group.

import { inOrder } from '../../data/order'
import { computed, signal } from '@preact/signals'
import { facetOf, idOfGroup, styleOfGroup, styleOfRun } from '../../data/looks'
import { groupOf, labelOf, shown } from '../../data/runs'
import { selectedKeys } from '../../data/selection'
import type { Run } from '../../data/types'
import { at } from '../../state/state'
import type { Drawn } from './wanted'

/** What the reader points at in the list of runs: the id of its line, or empty. */
export const pointedLine = signal('')

/** The id of the line that a run has, or is in. */
export const lineOf = (run: Run): string => (at.group.value ? idOfGroup(groupOf(run)) : run.key)

let last: Drawn[] = []

/** The same array until something that is drawn changes: runs report themselves every second, charts stay. */
export const drawn = computed(() => {
  const now = withSelection(at.group.value ? byGroup() : byRun())
  if (JSON.stringify(now) !== JSON.stringify(last)) last = now
  return last
})

/** Runs that are selected stand out, if any of them is drawn. */
function withSelection(all: Drawn[]): Drawn[] {
  const [chosen, has] = [selectedKeys.value, (one: Drawn) => one.runs.some((key) => chosen.has(key))]
  return chosen.size && all.some(has) ? all.map((one) => (has(one) ? one : { ...one, faint: true })) : all
}

function byRun(): Drawn[] {
  return shown.value.map((run) => ({
    id: run.key,
    label: labelOf(run.key),
    style: styleOfRun(run.key),
    facet: facetOf(run),
    runs: [run.key],
  }))
}

function byGroup(): Drawn[] {
  const found = new Map<string, { name: string; facet: string; runs: string[] }>()
  for (const run of shown.value) {
    const [name, facet] = [groupOf(run), facetOf(run)]
    const key = JSON.stringify([name, facet])
    found.set(key, { name, facet, runs: [...(found.get(key)?.runs ?? []), run.key] })
  }
  return Array.from(found.values(), ({ name, facet, runs }) => ({
    id: idOfGroup(name),
    label: runs.length > 1 ? `${name} (${runs.length})` : name,
    style: styleOfGroup(name),
    facet,
    runs,
  })).sort((a, b) => inOrder(a.label, b.label))
}
