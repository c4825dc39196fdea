// The values of table columns that come from series, such as `val/accuracy.max`, by column and run.

import { signal } from '@preact/signals'

export const columnValues = signal<ReadonlyMap<string, ReadonlyMap<string, number>>>(new Map())

/** The runs whose series are not added up. */
export const withoutTotals = signal<ReadonlySet<string>>(new Set())

export const NOT_ADDED_UP = 'What its series come to is not known: its files are damaged or too large, or it has too many series'

export const totalOf = (run: string, column: string): number | undefined => columnValues.value.get(column)?.get(run)
