// How lines look: each run or group has a colour and a dash of its own, or those of its value in a column; and into which
// facets the charts are divided.

import { computed } from '@preact/signals'
import { at, state, update } from '../state/state'
import { dark } from '../state/theme'
import { value as textOf } from '../views/format'
import { DASHES, LINES, mapped, SEQUENTIAL, styleOf, stylesOf, type LineStyle } from '../views/palette'
import { axisOf, isWide, type Axis } from './axis'
import { valueOf } from './filter'
import { grouped, nameOfGroup, together } from './groups'
import { inOrder } from './order'
import { groupKeys, groupOf, runs, shown } from './runs'
import type { Run } from './types'

// A run keeps the place that it had when the page first saw it, so a colour never changes while runs come and go.
const places = new Map<string, number>()
const placed = computed(() => {
  const fresh = (runs.value ?? []).filter((run) => !places.has(run.key))
  fresh.sort((a, b) => (a.started ?? 0) - (b.started ?? 0) || (a.key < b.key ? -1 : 1))
  for (const run of fresh) places.set(run.key, places.size)
  return places
})

/** The place in the palette: the reader's choice, else the run's own. */
const placeOf = (key: string): number => at.color.value[key] ?? placed.value.get(key) ?? 0

/** Give a run, or a group by its name, a colour of the palette. */
export function setColor(name: string, place: number): void {
  update({ color: { ...state.peek().color, [name]: place } })
}

/** The groups of all runs by their names, in a natural order. */
const allGroups = computed((): ReadonlyMap<string, Run[]> => (groupKeys.value.length ? grouped(runs.value ?? [], groupKeys.value, []) : new Map()))
const groupPlaces = computed(() => new Map([...allGroups.value.keys()].map((name, place) => [name, place])))

/** The id of a group's line; runs have their keys. */
export const idOfGroup = (name: string): string => `group ${name}`

/** The axis of a column; logarithmic as the reader says, else where values are far apart. */
export function axisFor(name: string, values: readonly unknown[]): Axis {
  const logs = at.logs.value
  return axisOf(name, values, logs.includes(name) || (!logs.includes(`!${name}`) && isWide(values)))
}

/** The colour of a place on an axis: shades of numbers, the palette for texts. */
export function shadeOf({ texts }: Axis, place: number): string {
  if (Number.isNaN(place)) return 'gray' // not known, or not the same in all of a group
  if (texts.length) return LINES[Math.round(place * (texts.length - 1)) % LINES.length]!
  // Without the end that the ground of the theme swallows.
  return `rgb(${mapped(SEQUENTIAL, dark.value ? 0.3 + 0.7 * place : 0.82 * place).join(' ')})`
}

/** A value that there is, at its place on an axis. */
interface Level {
  place: number
  text: string
}

/** The values that there are, in the order of their places. */
export function levelsOf(axis: Axis, values: readonly unknown[]): Level[] {
  const texts = new Map(values.map((value, i) => [axis.places[i]!, textOf(value)]))
  return Array.from(texts, ([place, text]) => ({ place, text })).filter(({ place }) => !Number.isNaN(place)).sort((a, b) => a.place - b.place)
}

/** So many values are named; of more numbers, some between the lowest and the highest. */
const MAX_NAMED = LINES.length

/** The values that a key names, and how many more there are. */
export function namedOf(axis: Axis, levels: readonly Level[], shades: boolean): { named: readonly Level[]; n_more: number } {
  if (shades && !axis.texts.length && levels.length > MAX_NAMED) return { named: axis.ticks(6).map(({ at, text }) => ({ place: at, text })), n_more: 0 }
  return { named: levels.slice(0, MAX_NAMED), n_more: Math.max(0, levels.length - MAX_NAMED) }
}

/** A column that says how lines look: its axis, and the place on it of each run and group by id. */
interface Told {
  column: string
  axis: Axis
  places: ReadonlyMap<string, number>
  levels: readonly Level[]
}

function toldBy(column: string): Told | null {
  if (!column) return null
  const [all, groups] = [runs.value ?? [], allGroups.value]
  const ids = [...all.map(({ key }) => key), ...[...groups.keys()].map(idOfGroup)]
  const values = [...all.map((run) => valueOf(run, column)), ...[...groups.values()].map((members) => together(members, column).value)]
  const axis = axisFor(column, values)
  return { column, axis, places: new Map(ids.map((id, i) => [id, axis.places[i]!])), levels: levelsOf(axis, values) }
}

const coloring = computed(() => toldBy(at.colorby.value))
const dashing = computed(() => toldBy(at.dashby.value))

/** The dash of lines that have no value, or several. */
const DOTS = [1, 4]

function dashOf({ levels }: Told, place: number): number[] {
  const level = levels.findIndex((one) => one.place === place)
  return level < 0 ? DOTS : DASHES[level % DASHES.length]!
}

/** The style of a run or group by id: its own, where no column says another. */
function styled(id: string, own: LineStyle): LineStyle {
  const [color, dash] = [coloring.value, dashing.value]
  return {
    color: color ? shadeOf(color.axis, color.places.get(id) ?? NaN) : own.color,
    // Dashes tell lines of one colour apart; where colours mean a value, they would seem to mean one, too.
    dash: dash ? dashOf(dash, dash.places.get(id) ?? NaN) : color ? [] : own.dash,
  }
}

const shownStyles = computed(() => {
  const keys = shown.value.map((run) => run.key)
  const styles = stylesOfRuns(keys)
  return new Map(keys.map((key, i) => [key, styles[i]!]))
})

/** The styles of runs that share a chart. */
export function stylesOfRuns(keys: readonly string[]): LineStyle[] {
  const own = stylesOf(keys.map(placeOf))
  return keys.map((key, i) => styled(key, own[i]!))
}

export const styleOfRun = (key: string): LineStyle => shownStyles.value.get(key) ?? styled(key, styleOf(placeOf(key)))

export function styleOfGroup(name: string): LineStyle {
  const place = groupPlaces.value.get(name) ?? 0
  return styled(idOfGroup(name), styleOf(at.color.value[name] ?? place, Math.floor(place / LINES.length)))
}

/** What a column's colours, or dashes, mean. */
function keyOf(told: Told, shades: boolean, styleAt: (place: number) => LineStyle) {
  const { named, n_more } = namedOf(told.axis, told.levels, shades)
  const lacks = drawnIds.value.some((id) => Number.isNaN(told.places.get(id) ?? NaN))
  const without = lacks ? [{ place: NaN, text: groupKeys.value.length ? 'none or several' : 'none' }] : []
  return { column: told.column, n_more, values: [...named, ...without].map(({ place, text }) => ({ text, style: styleAt(place) })) }
}

const drawnIds = computed(() => (groupKeys.value.length ? shown.value.map((run) => idOfGroup(groupOf(run))) : shown.value.map(({ key }) => key)))

/** What colours and dashes mean, where a column says it. */
export const looksKey = computed(() => {
  const [color, dash] = [coloring.value, dashing.value]
  return [
    ...(color ? [keyOf(color, true, (place) => ({ color: shadeOf(color.axis, place), dash: [] }))] : []),
    ...(dash ? [keyOf(dash, false, (place) => ({ color: 'currentColor', dash: dashOf(dash, place) }))] : []),
  ]
})

/** Charts are divided into so many at most. */
export const MAX_FACETS = 12

/** The part of the charts that a run is drawn in; empty where they are not divided. */
export const facetOf = (run: Run): string => (at.facet.value ? nameOfGroup(run, [at.facet.value]) : '')

/** The parts of each chart, of what is drawn, in a natural order, and how many more there would be. */
export const facets = computed((): { names: readonly string[]; n_more: number } => {
  const all = at.facet.value ? [...new Set(shown.value.map(facetOf))].sort(inOrder) : []
  return { names: all.slice(0, MAX_FACETS), n_more: Math.max(0, all.length - MAX_FACETS) }
})
