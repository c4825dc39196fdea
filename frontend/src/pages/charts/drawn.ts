// What every chart draws: a line a run, or a line a group.

import { computed } from '@preact/signals'
import { groupOf, shown, styleOfGroup, styleOfRun } from '../../data/runs'
import type { Scalars } from '../../data/types'
import { at } from '../../state/state'
import type { Line } from '../../views/draw'
import { meanOf, type BandKind } from '../../views/group'
import type { LineStyle } from '../../views/palette'
import { smooth } from '../../views/smooth'

export interface Drawn {
  id: string
  label: string
  style: LineStyle
  runs: string[]
}

let last: Drawn[] = []

/** The same array until something that is drawn changes: runs report themselves every second, charts stay. */
export const drawn = computed(() => {
  const key = at.group.value
  const now = key ? byGroup(key) : byRun()
  if (JSON.stringify(now) !== JSON.stringify(last)) last = now
  return last
})

function byRun(): Drawn[] {
  const names = new Map<string, number>()
  for (const run of shown.value) names.set(run.name, (names.get(run.name) ?? 0) + 1)
  return shown.value.map((run) => ({
    id: run.key,
    label: names.get(run.name)! > 1 ? `${run.name} · ${run.id.slice(0, 6)}` : run.name,
    style: styleOfRun(run.key),
    runs: [run.key],
  }))
}

function byGroup(key: string): Drawn[] {
  const found = new Map<string, string[]>()
  for (const run of shown.value) {
    const name = groupOf(run, key)
    found.set(name, [...(found.get(name) ?? []), run.key])
  }
  return Array.from(found, ([name, runs]) => ({
    id: `group ${name}`,
    label: runs.length > 1 ? `${name} (${runs.length})` : name,
    style: styleOfGroup(name),
    runs,
  })).sort((a, b) => a.label.localeCompare(b.label, undefined, { numeric: true }))
}

export interface LineOptions {
  weight: number
  band: BandKind
}

/** The line of one entry from the series that have come so far; null while none has. */
export function lineOf({ id, label, style }: Drawn, series: readonly Scalars[], { weight, band }: LineOptions): Line | null {
  if (series.length === 0) return null
  if (series.length === 1) {
    const { x, y } = series[0]!
    return { id, label, style, x, y: smooth(y, weight), raw: weight > 0 ? y : undefined }
  }
  const mean = meanOf(series.map((data) => ({ x: data.x, y: smooth(data.y, weight) })), band)
  return { id, label, style, x: mean.x, y: mean.y, ...(band === 'none' ? {} : { low: mean.low, high: mean.high }) }
}
