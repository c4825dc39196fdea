// The values of table columns that come from series, such as `val/accuracy.max`, by column and run.

import { signal } from '@preact/signals'

export const columnValues = signal<ReadonlyMap<string, ReadonlyMap<string, number>>>(new Map())

export const totalOf = (run: string, column: string): number | undefined => columnValues.value.get(column)?.get(run)
