// The runs as rows: under the heads of their groups, where they are grouped.

import { computed } from '@preact/signals'
import { filtered, groups } from '../../data/runs'
import { at } from '../../state/state'
import type { Run } from '../../data/types'

export type Row = { kind: 'group'; name: string; runs: Run[] } | { kind: 'run'; run: Run }

export const rows = computed((): Row[] => {
  const grouped = groups.value
  if (!grouped) return filtered.value.map((run) => ({ kind: 'run', run }))
  return [...grouped].flatMap(([name, members]): Row[] => [{ kind: 'group', name, runs: members }, ...(at.fold.value ? [] : members).map((run): Row => ({ kind: 'run', run }))])
})

export const keyOf = (row: Row): string => (row.kind === 'group' ? `group ${row.name}` : row.run.key)
