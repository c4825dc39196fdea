// The box for a filter of runs: completes names and values, and shows the place of what cannot be read.

import { useId } from 'preact/hooks'
import { filterFault, filterNames, parsed, statistics, tags } from '../../data/columns'
import { FACTS } from '../../data/filter'
import { runs } from '../../data/runs'
import { at, update } from '../../state/state'
import { useCompletions } from '../../ui/completions'
import { Icon } from '../../ui/Icon'
import { completionsOf } from './filterComplete'

const AROUND = 14

export function RunFilter() {
  const id = useId()
  const text = at.filter.value
  const { open, box, list } = useCompletions({
    find: (before, asked) => {
      const names = filterNames.value.map((name) => ({ name, kind: kindOf(name) }))
      return completionsOf(before, { names, statistics: statistics.value, runs: runs.value ?? [] }, asked)
    },
    onText: (filter) => update({ filter }),
  })
  const fault = open ? null : filterFault.value
  return (
    <div class="search-box run-filter">
      <label class="search">
        <Icon name="search" size={14} />
        <input
          {...box}
          type="search"
          aria-label="Filter runs"
          placeholder="val/accuracy > 0.5 and lr < 0.1"
          title="Words on the name, and conditions: lr < 0.1 and (opt.name == adam or seed in (1, 2)) and not state = failed"
          aria-invalid={Boolean(fault)}
          aria-describedby={fault ? `${id}-fault` : undefined}
          data-hotkey="/"
          value={text}
        />
        {!text && <kbd aria-hidden="true">/</kbd>}
      </label>
      {list}
      {fault && (
        <p class="field-problem" role="alert" id={`${id}-fault`}>
          {fault.message}
          <code class="run-filter-place" aria-hidden="true">
            {fault.at > AROUND && '…'}
            {text.slice(Math.max(0, fault.at - AROUND), fault.at)}
            <mark>{text.slice(fault.at, fault.at + 1) || ' '}</mark>
            {text.slice(fault.at + 1, fault.at + AROUND)}
          </code>
        </p>
      )}
    </div>
  )
}

const kindOf = (name: string): string => (FACTS.includes(name) ? 'fact' : tags.value.includes(name) || parsed(name) ? 'series' : 'config')
