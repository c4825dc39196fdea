// The box for a filter of runs: completes names and values, and shows the place of what cannot be read.

import { useId, useRef, useState } from 'preact/hooks'
import { filterFault, filterNames, parsed, statistics, tags } from '../../data/columns'
import { FACTS } from '../../data/filter'
import { runs } from '../../data/runs'
import { at, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { completionsOf, type FilterCompletion, type FilterCompletions } from './filterComplete'

const NONE: FilterCompletions = { from: 0, items: [] }
const AROUND = 14

export function RunFilter() {
  const id = useId()
  const box = useRef<HTMLInputElement>(null)
  const [found, setFound] = useState(NONE)
  const [chosen, setChosen] = useState(-1)
  const text = at.filter.value
  const open = found.items.length > 0
  const fault = open ? null : filterFault.value
  const shut = () => (setFound(NONE), setChosen(-1))
  const complete = (asked: boolean) => {
    const { value, selectionStart } = box.current!
    const names = filterNames.value.map((name) => ({ name, kind: kindOf(name) }))
    setFound(completionsOf(value.slice(0, selectionStart ?? value.length), { names, statistics: statistics.value, runs: runs.value ?? [] }, asked))
    setChosen(-1)
  }
  const take = ({ text: item }: FilterCompletion) => {
    const { value, selectionStart } = box.current!
    const head = value.slice(0, found.from) + item
    box.current!.value = head + value.slice(selectionStart ?? value.length)
    box.current!.focus()
    box.current!.setSelectionRange(head.length, head.length)
    update({ filter: box.current!.value })
    shut()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (event.key === ' ' && event.ctrlKey) complete(true)
    else if (step && open) setChosen((chosen + step + found.items.length + (chosen < 0 && step < 0 ? 1 : 0)) % found.items.length)
    else if (event.key === 'ArrowDown') complete(true)
    else if (event.key === 'Tab' && open && !event.shiftKey) take(found.items[Math.max(0, chosen)]!)
    else if (event.key === 'Enter' && open && chosen >= 0) take(found.items[chosen]!)
    else if (event.key === 'Escape' && open) shut()
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  return (
    <div class="search-box run-filter">
      <label class="search">
        <Icon name="search" size={14} />
        <input
          ref={box}
          type="search"
          aria-label="Filter runs"
          placeholder="val/accuracy > 0.5 and lr < 0.1"
          title="Words on the name, and conditions: lr < 0.1 and (opt.name == adam or seed in (1, 2)) and not state = failed"
          aria-autocomplete="list"
          aria-controls={open ? `${id}-list` : undefined}
          aria-activedescendant={open && chosen >= 0 ? `${id}-${chosen}` : undefined}
          aria-invalid={Boolean(fault)}
          aria-describedby={fault ? `${id}-fault` : undefined}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          data-hotkey="/"
          value={text}
          onInput={({ currentTarget }) => {
            update({ filter: currentTarget.value })
            complete(false)
          }}
          onBlur={shut}
          onKeyDown={onKeyDown}
        />
        {!text && <kbd aria-hidden="true">/</kbd>}
      </label>
      {open && (
        <ul class="completions" id={`${id}-list`} role="listbox" aria-label="Completions">
          {found.items.map((item, i) => (
            <li key={item.text} id={`${id}-${i}`} role="option" aria-selected={i === chosen} ref={(row) => void (i === chosen && row?.scrollIntoView({ block: 'nearest' }))} onMouseDown={(event) => (event.preventDefault(), take(item))}>
              <code>{item.text}</code>
              <span class="completion-kind">{item.kind}</span>
            </li>
          ))}
        </ul>
      )}
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
