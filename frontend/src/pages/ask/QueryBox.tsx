// The box for a query: completes the run's names, checks the text while it is typed, and shows errors under their place.

import { useEffect, useRef, useState } from 'preact/hooks'
import { get, runPath } from '../../data/api'
import type { Completion, Completions } from '../../data/types'
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
  autofocus?: boolean
  onText: (text: string) => void
  onAsk: (text: string, how: Asking) => void
  onEscape?: () => void
}

export function QueryBox({ id, run, text, button, hotkey, autofocus, onText, onAsk, onEscape }: QueryBoxProps) {
  const box = useRef<HTMLInputElement>(null)
  const [problem, setProblem] = useProblem(run, text)
  const [found, setFound] = useState(NOTHING)
  const [chosen, setChosen] = useState(-1)
  const [call, setCall] = useState<Completions['call']>(null)
  const before = useRef({ at: -1, draft: '' })
  const open = found.items.length > 0
  useEffect(() => {
    if (autofocus) box.current!.focus()
  }, [])

  const caretOf = (input: HTMLInputElement) => input.selectionStart ?? input.value.length
  const complete = async () => {
    const [text, caret] = [box.current!.value, caretOf(box.current!)]
    if (!run) return
    const found = await get<Completions>(runPath(run, '/complete'), { text, caret }).catch(() => null)
    const now = box.current
    if (!found || now === null || now.value !== text || caretOf(now) !== caret || document.activeElement !== now) return
    setFound({ ...found, items: found.items.filter((item) => item.text !== text.slice(found.start, caret)), text, caret })
    setCall(found.call)
    setChosen(-1)
  }
  const shut = () => (setFound(NOTHING), setChosen(-1))
  const write = (next: string, place = next.length) => {
    // At once, and not when the page is next drawn: the next key must find the new text and caret.
    box.current!.value = next
    box.current!.focus()
    box.current!.setSelectionRange(place, place)
    onText(next)
  }
  const take = (item: Completion) => {
    const next = found.text.slice(0, found.start - item.over) + item.text
    shut()
    write(next + found.text.slice(found.caret), next.length)
    if (/[.("]$/.test(item.text)) void complete()
  }
  const ask = async (how: Asking & { stay: boolean }) => {
    shut()
    const query = oneLine(text)
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
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (event.key === ' ' && event.ctrlKey) void complete()
    else if (step && open) setChosen((chosen + step + found.items.length + (chosen < 0 && step < 0 ? 1 : 0)) % found.items.length)
    else if (step === -1) recall(1)
    else if (step && before.current.at >= 0) recall(-1)
    else if (step) void complete()
    else if (event.key === 'Tab' && open && !event.shiftKey) take(found.items[Math.max(0, chosen)]!)
    else if (event.key === 'Enter' && chosen >= 0 && found.items[chosen]) take(found.items[chosen]!)
    else if (event.key === 'Enter') void ask({ beside: event.shiftKey, stay: event.ctrlKey || event.metaKey })
    else if (event.key === 'Escape' && open) shut()
    else if (event.key === 'Escape' && onEscape) onEscape()
    else return
    event.preventDefault()
    event.stopPropagation()
  }

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
          aria-activedescendant={chosen >= 0 ? `${id}-${chosen}` : undefined}
          aria-invalid={Boolean(problem)}
          aria-describedby={problem ? `${id}-problem` : undefined}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          data-hotkey={hotkey}
          placeholder="batch.loss.mean(every=100)"
          value={text}
          onInput={({ currentTarget }) => {
            before.current = { at: -1, draft: '' }
            onText(currentTarget.value)
            void complete()
          }}
          onBlur={shut}
          onKeyDown={onKeyDown}
        />
        <button type="button" class="button button-main" disabled={!text.trim()} title="Enter; with Ctrl the query stays here, with Shift it joins the newest panel" onClick={({ shiftKey, ctrlKey }) => void ask({ beside: shiftKey, stay: ctrlKey })}>
          {button}
        </button>
        {open && <List id={id} items={found.items} chosen={chosen} onTake={take} />}
      </div>
      {call && text && !open && !problem && (
        <p class="query-hint">
          <code>{call.signature}</code> {call.doc}
        </p>
      )}
      {problem && !open && (
        <pre class="query-problem" role="alert" id={`${id}-problem`}>
          {problem}
        </pre>
      )}
    </div>
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
