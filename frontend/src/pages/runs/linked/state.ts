// What the linked views show: the runs of the table, the columns on their axes, and the colours.

import { computed, signal } from '@preact/signals'
import { chosen, parsed, sortKeys, tags } from '../../../data/columns'
import { configKeys, valueOf } from '../../../data/filter'
import { filtered, groupKeys, groupOf, styleOfGroup, styleOfRun } from '../../../data/runs'
import { at } from '../../../state/state'
import { dark } from '../../../state/theme'
import { LINES, mapped, SEQUENTIAL } from '../../../views/palette'
import { axisOf, type Axis } from './axis'

const N_AXES = 6

/** The run under the pointer in one of the views, shown in all; its key. */
export const pointed = signal('')

const differing = computed(() => configKeys(filtered.value).filter(({ n_values }) => n_values > 1).map(({ key }) => key))
const numbers = computed(() => differing.value.filter((key) => filtered.value.every((run) => typeof (valueOf(run, key) ?? 0) === 'number')))

/** The series that matters to the reader: the one that the table is sorted by, else the first of its columns, else any. */
const measured = computed(() => {
  const names = [...sortKeys(at.sort.value).map((key) => key.replace(/^-/, '')), ...(chosen.value ?? [])]
  return names.find(parsed) ?? (tags.value.length ? `${tags.value[0]}.last` : 'duration')
})

export const across = computed(() => at.across.value || numbers.value[0] || 'started')
export const up = computed(() => at.up.value || measured.value)
export const axisNames = computed(() => at.axes.value ?? [...differing.value.slice(0, N_AXES), up.value])

/** Whether the best is the lowest: as the reader says, else as the column's name does. */
export const lowest = computed(() => {
  if (at.best.value !== 'auto') return at.best.value === 'min'
  const series = up.value.replace(/@.*/, '') // where another series is best, its name says nothing of this one
  return /\.(max|argmax)$/.test(series) ? false : /\.(min|argmin)$|loss|err|perplexity|duration/i.test(series)
})

/** The names of columns to choose from, by what they are. */
export const offered = computed((): (readonly [kind: string, names: readonly string[]])[] => {
  const series = tags.value.slice(0, 100).flatMap((tag) => ['last', 'min', 'max'].map((one) => `${tag}.${one}`))
  const measures = [...new Set([...(chosen.value ?? []).filter(parsed), ...series])]
  const config = configKeys(filtered.value).map(({ key }) => key)
  return [['Configuration', config], ['Series', measures], ['Facts', ['started', 'duration', 'last_step', 'state', 'host', 'name']]]
})

/** The axis of a column over the runs of the table. */
const axisFor = (name: string): Axis => axisOf(name, filtered.value.map((run) => valueOf(run, name)), at.logs.value.includes(name))

export const acrossAxis = computed(() => axisFor(across.value))
export const upAxis = computed(() => axisFor(up.value))
export const startAxis = computed(() => axisFor('started'))
export const axes = computed(() => axisNames.value.map(axisFor))
const tintAxis = computed(() => (at.tint.value ? axisFor(at.tint.value) : null))

/** A colour for a place on the axis that tints: shades of numbers, the palette for texts. */
function shadeOf({ texts }: Axis, place: number): string {
  if (Number.isNaN(place)) return 'gray'
  if (texts.length) return LINES[Math.round(place * (texts.length - 1)) % LINES.length]!
  // Without the end that the ground of the theme swallows.
  return `rgb(${mapped(SEQUENTIAL, dark.value ? 0.3 + 0.7 * place : 0.82 * place).join(' ')})`
}

/** What the colours mean, where they are not the runs' own: texts, or numbers from the lowest to the highest. */
export const key = computed(() => {
  const tint = tintAxis.value
  if (!tint) return []
  if (tint.texts.length) return tint.texts.slice(0, LINES.length).map((text, i) => ({ color: shadeOf(tint, i / Math.max(1, tint.texts.length - 1)), text }))
  return tint.ticks(4).map(({ at, text }) => ({ color: shadeOf(tint, at), text }))
})

/** The colour of each run of the table. */
export const colors = computed((): string[] => {
  const tint = tintAxis.value
  return filtered.value.map((run, i) => (tint ? shadeOf(tint, tint.places[i]!) : groupKeys.value.length ? styleOfGroup(groupOf(run)).color : styleOfRun(run.key).color))
})
