// The choice of the columns by which lines have colours and dashes, and by which charts are divided.

import { useMemo } from 'preact/hooks'
import { sortKeys } from '../../data/columns'
import { configKeys, valueOf } from '../../data/filter'
import { MAX_FACETS } from '../../data/looks'
import { runs } from '../../data/runs'
import type { Run } from '../../data/types'
import { at, update } from '../../state/state'
import { DASHES } from '../../views/palette'
import { GROUP_FACTS } from './GroupBy'

/** What can be chosen, what it is without a choice, and of how many values each has its own colour, dash, or part. */
const CHOICES = [
  { field: 'colorby', label: 'Colour', none: 'own', max: Infinity },
  { field: 'dashby', label: 'Dash', none: 'own', max: DASHES.length },
  { field: 'facet', label: 'Facet', none: 'none', max: MAX_FACETS },
] as const

/** The keys in which runs differ, with how many values each has. */
function differing(all: readonly Run[]): { key: string; n_values: number }[] {
  const facts = GROUP_FACTS.map((key) => ({ key, n_values: new Set(all.map((run) => valueOf(run, key))).size }))
  return [...configKeys(all), ...facts].filter(({ n_values }) => n_values > 1)
}

export function Looks() {
  const keys = useMemo(() => differing(runs.value ?? []), [runs.value])
  const ranked = sortKeys(at.sort.value)[0]?.replace(/^-/, '')
  if (!keys.length && CHOICES.every(({ field }) => !at[field].value)) return null
  return (
    <div class="looks" role="group" aria-label="Looks of lines">
      {CHOICES.map(({ field, label, none, max }) => {
        const now = at[field].value
        const names = keys.filter(({ n_values }) => n_values <= max).map(({ key }) => key)
        const known = field === 'colorby' && ranked && ranked !== 'started' && !names.includes(ranked) ? [ranked, ...names] : names
        return (
          <label key={field}>
            <span class="muted">{label}</span>
            <select aria-label={`${label} by`} value={now} onChange={({ currentTarget }) => update({ [field]: currentTarget.value })}>
              <option value="">{none}</option>
              {(now && !known.includes(now) ? [now, ...known] : known).map((key) => (
                <option key={key} value={key}>
                  {key}
                </option>
              ))}
            </select>
          </label>
        )
      })}
    </div>
  )
}
