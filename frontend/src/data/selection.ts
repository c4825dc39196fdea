// The runs that are selected, in the table or in the views beside it, to do something with all of them.

import { computed, signal } from '@preact/signals'
import { filtered } from './runs'
import type { Run } from './types'

const keys = signal<ReadonlySet<string>>(new Set())
export const selectedKeys = computed(() => keys.value)
/** The run that was selected last: with the Shift key, all from it on are. */
let last = ''

/** The selected runs that the table shows, in its order. */
export const selected = computed((): Run[] => filtered.value.filter(({ key }) => keys.value.has(key)))
export const isSelected = (key: string): boolean => keys.value.has(key)

export function select(key: string, on: boolean, range: boolean): void {
  const order = filtered.peek().map((run) => run.key)
  const [a, b] = [order.indexOf(last), order.indexOf(key)].sort((one, other) => one - other)
  const change = range && a! >= 0 ? order.slice(a, b! + 1) : [key]
  keys.value = new Set(on ? [...keys.peek(), ...change] : [...keys.peek()].filter((one) => !change.includes(one)))
  last = key
}

export const selectAll = (on: boolean): void => selectThese(on ? filtered.peek().map((run) => run.key) : [])

/** Select these runs, or these too. */
export function selectThese(these: readonly string[], too = false): void {
  keys.value = new Set(too ? [...keys.peek(), ...these] : these)
}
