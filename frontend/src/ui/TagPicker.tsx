// A run, and one of its tags: lists that are searched, however long they are.

import { signal } from '@preact/signals'
import { useMemo, useRef, useState } from 'preact/hooks'
import { runs } from '../data/runs'
import { parseFilter } from '../data/filter'
import type { Run, Tag } from '../data/types'
import { tagSearch } from '../pages/charts/sections'
import { Name } from '../pages/runs/Name'
import { StateDot } from '../run/StateDot'
import { count } from '../views/format'
import { Icon } from './Icon'
import { Search } from './parts'
import { Rows } from './Rows'

/** Whether the list is open on narrow windows, where it covers the page. */
export const pickerOpen = signal(false)

const ROW = 30

interface TagPickerProps {
  label: string
  /** Without it, the page is about several runs. */
  run?: Run | null
  onRun?: (key: string) => void
  tags: readonly Tag[]
  chosen: string
  onTag: (tag: string) => void
  search: string
  onSearch: (text: string) => void
  /** Shown instead of an empty list. */
  empty: string
}

export function TagPicker({ label, run, onRun, tags, chosen, onTag, search, onSearch, empty }: TagPickerProps) {
  const [choosing, setChoosing] = useState(false)
  const { matches, problem } = useMemo(() => tagSearch(search), [search])
  const found = useMemo(() => tags.filter(({ tag }) => matches(tag)), [tags, matches])
  const pick = (tag: string) => {
    onTag(tag)
    pickerOpen.value = false
  }
  return (
    <>
      <nav class={`picker ${pickerOpen.value ? 'is-open' : ''}`} aria-label={label}>
        {onRun && (
          <button type="button" class="picker-run" aria-expanded={choosing} onClick={() => setChoosing(!choosing)}>
            {run && <StateDot state={run.state} why={run.why} problem={run.problem} />}
            <span class="picker-name" title={run?.directory}>
              {run ? <Name run={run} /> : 'Choose a run'}
            </span>
            <Icon name="down" size={14} />
          </button>
        )}
        {choosing && onRun ? (
          <RunChoice chosen={run?.key ?? ''} onRun={(key) => (setChoosing(false), onRun(key))} />
        ) : (
          <>
            <div class="picker-search">
              <Search label="Search tags" placeholder="Search tags" hotkey="t" value={search} problem={problem} onChange={onSearch} />
            </div>
            {found.length ? (
              <Options
                label="Tags"
                names={found.map(({ name }) => name)}
                chosen={chosen}
                onChoose={pick}
                row={(i) => (
                  <>
                    <span class="picker-name">{found[i]!.tag}</span>
                    <span class="picker-fact">{found[i]!.type}</span>
                    <span class="picker-fact picker-n" title="how many steps">
                      {count(found[i]!.n)}
                    </span>
                  </>
                )}
              />
            ) : (
              <p class="picker-empty muted">{tags.length ? `None of ${tags.length} tags matches.` : empty}</p>
            )}
          </>
        )}
      </nav>
      {pickerOpen.value && <button type="button" class="picker-scrim" aria-label="Close the list" onClick={() => (pickerOpen.value = false)} />}
    </>
  )
}

function RunChoice({ chosen, onRun }: { chosen: string; onRun: (key: string) => void }) {
  const [text, setText] = useState('')
  const filter = useMemo(() => parseFilter(text), [text])
  const found = (runs.value ?? []).filter(filter.matches)
  return (
    <>
      <div class="picker-search">
        <Search label="Search runs" placeholder="Search runs: regex, lr<0.1" value={text} problem={filter.fault?.message} onChange={setText} />
      </div>
      <Options
        label="Runs"
        names={found.map(({ key }) => key)}
        chosen={chosen}
        onChoose={onRun}
        row={(i) => (
          <>
            <StateDot state={found[i]!.state} why={found[i]!.why} problem={found[i]!.problem} />
            <span class="picker-name" title={found[i]!.directory}>
              <Name run={found[i]!} />
            </span>
          </>
        )}
      />
    </>
  )
}

interface OptionsProps {
  label: string
  names: readonly string[]
  chosen: string
  onChoose: (name: string) => void
  row: (i: number) => preact.ComponentChildren
}

/** A long list of which one is chosen: arrow keys go through it. */
function Options({ label, names, chosen, onChoose, row }: OptionsProps) {
  const box = useRef<HTMLDivElement>(null)
  const heights = useMemo(() => names.map(() => ROW), [names.length])
  const at = Math.max(0, names.indexOf(chosen))
  const onKeyDown = (event: KeyboardEvent) => {
    const here = Number((document.activeElement as HTMLElement | null)?.dataset.place ?? at)
    const to = ({ ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: names.length - 1, PageDown: here + 10, PageUp: here - 10 } as Record<string, number>)[event.key]
    if (to === undefined) return
    event.preventDefault()
    const place = Math.max(0, Math.min(names.length - 1, to))
    const scroller = box.current!.querySelector<HTMLElement>('.rows')!
    const [top, bottom] = [place * ROW, (place + 1) * ROW]
    if (top < scroller.scrollTop) scroller.scrollTop = top
    if (bottom > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = bottom - scroller.clientHeight
    requestAnimationFrame(() => requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`[data-place="${place}"]`)?.focus()))
  }
  return (
    <div class="picker-list" ref={box} onKeyDown={onKeyDown}>
      <Rows
        label={label}
        heights={heights}
        keyOf={(i) => names[i]!}
        row={(i) => (
          <button type="button" class="picker-row" data-place={i} tabIndex={i === at ? 0 : -1} aria-current={names[i] === chosen ? 'true' : undefined} title={names[i]} onClick={() => onChoose(names[i]!)}>
            {row(i)}
          </button>
        )}
      />
    </div>
  )
}
