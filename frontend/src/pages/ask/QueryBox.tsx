// The box for a query: completes the run's names, checks the text while it is typed, and shows errors under their place.

import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { get, runPath } from '../../data/api'
import type { Completion, Completions } from '../../data/types'
import { corrected } from './corrected'
import { noteQuery, readQueryHistory } from './queryHistory'
import { oneLine } from './panels'
import { problemOf, useProblem } from './useQuery'

/** Completions, with the text and the caret that they are for: an item replaces what is between `start` and the caret. */
interface Found extends Completions {
  text: string
  caret: number
}

const NOTHING: Found = { start: 0, items: [], call: null, text: '', caret: 0 }

export interface Asking {
  /** Put it into the newest panel instead of one of its own. */
  beside: boolean
}

interface QueryBoxProps {
  id: string
  run: string
  text: string
  button: string
  hotkey?: string
  placeholder?: string
  autofocus?: boolean
  onText: (text: string) => void
  onAsk: (text: string, how: Asking) => void
  onEscape?: () => void
}

const caretOf = (input: HTMLInputElement) => input.selectionStart ?? input.value.length

async function completionsAt(run: string, text: string, caret: number): Promise<Found | null> {
  const found = run ? await get<Completions>(runPath(run, '/complete'), { text, caret }).catch(() => null) : null
  return found && { ...found, items: found.items.filter((item) => item.text !== text.slice(found.start, caret)), text, caret }
}

export function QueryBox({ id, run, text, button, hotkey, placeholder = 'batch.loss.mean(every=100)', autofocus, onText, onAsk, onEscape }: QueryBoxProps) {
  const box = useRef<HTMLInputElement>(null)
  const [problem, setProblem] = useProblem(run, text)
  const found = useSignal(NOTHING)
  const chosen = useSignal(-1)
  const call = useSignal<Completions['call']>(null)
  const pending = useRef<Promise<void> | null>(null)
  const queue = useRef<Promise<void> | null>(null) // of keys that wait for the completions
  const before = useRef({ at: -1, draft: '' })
  const open = found.value.items.length > 0
  useEffect(() => {
    if (autofocus) box.current!.focus()
  }, [])

  const complete = () => {
    const [text, caret] = [box.current!.value, caretOf(box.current!)]
    const asking: Promise<void> = completionsAt(run, text, caret).then((next) => {
      if (pending.current !== asking) return // another key came, or the list was shut
      pending.current = null
      if (!next || box.current?.value !== text) return
      found.value = next
      call.value = next.call
      chosen.value = -1
    })
    pending.current = asking
  }
  const shut = () => {
    found.value = NOTHING
    chosen.value = -1
    pending.current = null
  }
  const write = (next: string, place = next.length) => {
    // At once, and not when the page is next drawn: the next key must find the new text and caret.
    box.current!.value = next
    box.current!.focus()
    box.current!.setSelectionRange(place, place)
    onText(next)
  }
  const take = (item: Completion) => {
    const { text, start, caret } = found.value
    const next = text.slice(0, start - item.over) + item.text
    shut()
    write(next + text.slice(caret), next.length)
    if (/[.("]$/.test(item.text)) complete()
  }
  const ask = async (how: Asking & { stay: boolean }, asked = text) => {
    shut()
    const query = oneLine(asked)
    if (!query) return
    const wrong = await problemOf(run, query)
    if (wrong) return setProblem(wrong)
    noteQuery(query)
    before.current = { at: -1, draft: '' }
    if (!how.stay) onText('')
    onAsk(query, how)
  }
  const recall = (step: number) => {
    const asked = readQueryHistory()
    const at = Math.min(asked.length - 1, Math.max(-1, before.current.at + step))
    if (before.current.at < 0) before.current.draft = text
    before.current.at = at
    shut()
    write(at < 0 ? before.current.draft : asked[at]!)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const { key, shiftKey, ctrlKey, metaKey } = event
    const [waits, isOpen] = [queue.current !== null, found.value.items.length > 0 || pending.current !== null]
    const typed = waits && key.length === 1 && !ctrlKey && !metaKey
    const handled = ['ArrowDown', 'ArrowUp', 'Enter'].includes(key) || (key === ' ' && ctrlKey) || (key === 'Tab' && isOpen && !shiftKey) || (key === 'Escape' && (isOpen || onEscape))
    if (!typed && !handled) return
    event.preventDefault()
    event.stopPropagation()
    const act = () => (typed ? type(key) : onKey(key, shiftKey, ctrlKey || metaKey))
    // The list is of an older text until the reply is there, and later keys wait for those before. Asking waits for nothing.
    if (!waits && (!pending.current || key === 'Escape' || (key === 'Enter' && chosen.value < 0))) return act()
    const done: Promise<void> = (queue.current ?? Promise.resolve()).then(() => pending.current ?? undefined).then(() => {
      act()
      if (queue.current === done) queue.current = null
    })
    queue.current = done
  }
  const type = (character: string) => {
    const { value, selectionStart, selectionEnd } = box.current!
    const head = value.slice(0, selectionStart ?? value.length) + character
    write(head + value.slice(selectionEnd ?? value.length), head.length)
    complete()
  }
  const onKey = (key: string, shift: boolean, ctrl: boolean) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[key]
    const { items } = found.value
    const at = chosen.value
    if (key === ' ') complete()
    else if (step && items.length) chosen.value = (at + step + items.length + (at < 0 && step < 0 ? 1 : 0)) % items.length
    else if (step === -1) recall(1)
    else if (step && before.current.at >= 0) recall(-1)
    else if (step) complete()
    else if (key === 'Tab' && items.length) take(items[Math.max(0, at)]!)
    else if (key === 'Enter' && at >= 0 && items[at]) take(items[at]!)
    else if (key === 'Enter') void ask({ beside: shift, stay: ctrl })
    else if (key === 'Escape' && items.length) shut()
    else if (key === 'Escape' && onEscape) onEscape()
  }

  const meant = problem && corrected(text, problem)
  return (
    <div class="query">
      <div class="query-line">
        <input
          ref={box}
          class="query-input"
          role="combobox"
          aria-label="Query"
          aria-autocomplete="list"
          aria-expanded={open}
          aria-controls={open ? `${id}-list` : undefined}
          aria-activedescendant={chosen.value >= 0 ? `${id}-${chosen.value}` : undefined}
          aria-invalid={Boolean(problem)}
          aria-describedby={problem ? `${id}-problem` : undefined}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          data-hotkey={hotkey}
          placeholder={placeholder}
          value={text}
          onInput={({ currentTarget }) => {
            before.current = { at: -1, draft: '' }
            onText(currentTarget.value)
            complete()
          }}
          onBlur={shut}
          onKeyDown={onKeyDown}
        />
        <button type="button" class="button button-main" disabled={!text.trim()} title="Enter; with Ctrl the query stays here, with Shift it joins the newest panel" onClick={({ shiftKey, ctrlKey }) => void ask({ beside: shiftKey, stay: ctrlKey })}>
          {button}
        </button>
        {open && <List id={id} items={found.value.items} chosen={chosen.value} onTake={take} />}
      </div>
      {call.value && text && !open && !problem && (
        <p class="query-hint">
          <code>{call.value.signature}</code> {call.value.doc}
        </p>
      )}
      {problem && !open && (
        <div class="query-problem" role="alert" id={`${id}-problem`}>
          <pre>{problem}</pre>
          {meant && <Meant query={meant} onAsk={() => void ask({ beside: false, stay: false }, meant)} />}
        </div>
      )}
    </div>
  )
}

/** Asks what was meant, in place of what was typed. */
export function Meant({ query, onAsk }: { query: string; onAsk: () => void }) {
  return (
    <button type="button" class="button" onClick={onAsk}>
      Ask <code>{query}</code>
    </button>
  )
}

function List({ id, items, chosen, onTake }: { id: string; items: Completion[]; chosen: number; onTake: (item: Completion) => void }) {
  return (
    <ul class="completions" id={`${id}-list`} role="listbox" aria-label="Completions">
      {items.map((item, i) => (
        <li
          key={`${item.kind} ${item.text}`}
          id={`${id}-${i}`}
          role="option"
          aria-selected={i === chosen}
          ref={(row) => {
            if (i === chosen) row?.scrollIntoView({ block: 'nearest' })
          }}
          onMouseDown={(event) => (event.preventDefault(), onTake(item))}
        >
          <code>{item.text}</code>
          <span class="completion-detail">{item.detail}</span>
          <span class="completion-doc">{item.doc}</span>
          <span class="completion-kind">{item.kind}</span>
        </li>
      ))}
    </ul>
  )
}
