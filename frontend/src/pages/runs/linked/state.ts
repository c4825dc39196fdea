// What the linked views show: the runs of the table, the columns on their axes, and the colours.

import { computed, signal } from '@preact/signals'
import { chosen, parsed, sortKeys, tags } from '../../../data/columns'
import { configKeys, valueOf } from '../../../data/filter'
import { isWide, type Axis } from '../../../data/axis'
import { filtered, groupKeys, groupOf } from '../../../data/runs'
import { axisFor, levelsOf, namedOf, shadeOf, styleOfGroup, styleOfRun } from '../../../data/looks'
import { at, update } from '../../../state/state'
import { LINES } from '../../../views/palette'
import { rankCorrelation } from './correlation'

const N_AXES = 6
/** Of fewer runs a correlation says nothing. */
export const MIN_RUNS = 4
/** In the address: the runs' own colours, though there are more runs than colours. */
export const OWN = '-'

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

const valuesOf = (name: string): unknown[] => filtered.value.map((run) => valueOf(run, name))

const axisHere = (name: string): Axis => axisFor(name, valuesOf(name))

/** Make an axis logarithmic, or linear. */
export function setLog(name: string, on: boolean): void {
  const others = at.logs.peek().filter((one) => one !== name && one !== `!${name}`)
  update({ logs: on === isWide(valuesOf(name)) ? others : [...others, on ? name : `!${name}`] })
}

/** How far the ranked column rises or falls with each entry of the configuration, the strongest first. */
export const correlations = computed(() => {
  const measure = valuesOf(up.value)
  const all = differing.value.map((name) => ({ name, ...rankCorrelation(valuesOf(name), measure) }))
  return all.filter(({ rho, n }) => n >= MIN_RUNS && !Number.isNaN(rho)).sort((a, b) => Math.abs(b.rho) - Math.abs(a.rho))
})

export const acrossAxis = computed(() => axisHere(across.value))
export const upAxis = computed(() => axisHere(up.value))
export const startAxis = computed(() => axisHere('started'))
export const axes = computed(() => axisNames.value.map(axisHere))

/** The column that colours the runs: as the reader says, else what they are ranked by where they are more than there are colours. */
export const tint = computed(() => {
  const ranked = filtered.value.length > LINES.length && !groupKeys.value.length && parsed(up.value) ? up.value : ''
  return at.tint.value === OWN ? '' : at.tint.value || ranked
})
const tintAxis = computed(() => (tint.value ? axisHere(tint.value) : null))

/** What the colours mean, where they are not the runs' own, and how many more values there are. */
export const key = computed(() => {
  const axis = tintAxis.value
  if (!axis) return { named: [], n_more: 0 }
  const { named, n_more } = namedOf(axis, levelsOf(axis, valuesOf(axis.name)), true)
  return { named: named.map(({ place, text }) => ({ color: shadeOf(axis, place), text })), n_more }
})

/** The colour of each run of the table. */
export const colors = computed((): string[] => {
  const axis = tintAxis.value
  return filtered.value.map((run, i) => (axis ? shadeOf(axis, axis.places[i]!) : groupKeys.value.length ? styleOfGroup(groupOf(run)).color : styleOfRun(run.key).color))
})
