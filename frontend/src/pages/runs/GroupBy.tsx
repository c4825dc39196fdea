// The choice of what runs are grouped by: keys one after another, or all that differ but some, such as the seed.

import { useMemo } from 'preact/hooks'
import { configKeys } from '../../data/filter'
import { runs } from '../../data/runs'
import { at, update } from '../../state/state'

export const GROUP_FACTS = ['name', 'project', 'state', 'host', 'source']
const MAX_PARTS = 4
/** What is usually left out: these come first. */
const SEED = /seed|fold|trial|repeat/i

export function GroupBy() {
  const keys = useMemo(() => configKeys(runs.value ?? []), [runs.value])
  const parts = at.group.value.split('|').filter(Boolean)
  const without = parts[0]?.startsWith('!') ?? false
  const set = (i: number, key: string) => update({ group: [...parts.slice(0, i), key, ...(key === '' || key.startsWith('!') !== without ? [] : parts.slice(i + 1))].filter(Boolean).join('|') })
  const differing = keys.filter(({ n_values }) => n_values > 1).sort((a, b) => Number(SEED.test(b.key)) - Number(SEED.test(a.key)))
  return (
    <div class="group-by" role="group" aria-label="Groups">
      <span class="muted" aria-hidden="true">
        Group
      </span>
      {[...parts, ''].slice(0, MAX_PARTS).map((part, i) => (
        <select key={i} aria-label={i === 0 ? 'Group' : 'Then by'} value={part} title={i > 0 && !part ? 'Group by another key, too' : undefined} class={i > 0 && !part ? 'group-more' : ''} onChange={({ currentTarget }) => set(i, currentTarget.value)}>
          <option value="">{i === 0 || part ? 'none' : '+'}</option>
          {i === 0 && !without && GROUP_FACTS.map((key) => <Option key={key} value={key} text={key} />)}
          {!(i > 0 && without) && keys.map(({ key, n_values }) => (part === key || !parts.includes(key)) && <Option key={key} value={key} text={`${key} (${n_values})`} />)}
          {(i === 0 || without) && (
            <optgroup label="All that differs but">
              {differing.map(({ key }) => (part === `!${key}` || !parts.includes(`!${key}`)) && <Option key={key} value={`!${key}`} text={i === 0 ? `all but ${key}` : `and ${key}`} />)}
            </optgroup>
          )}
        </select>
      ))}
    </div>
  )
}

const Option = ({ value, text }: { value: string; text: string }) => <option value={value}>{text}</option>
