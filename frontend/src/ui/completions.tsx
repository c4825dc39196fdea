// Completions of a text box: a list below it, in which arrow keys choose, and Tab or Enter take.

import type { JSX, RefObject } from 'preact'
import { useId, useRef, useState } from 'preact/hooks'

export interface Completion {
  text: string
  kind?: string
}

export interface Completions {
  /** The start of the text that an item replaces. */
  from: number
  items: readonly Completion[]
}

const NONE: Completions = { from: 0, items: [] }

interface Completing {
  /** The completions at the end of a text; `asked` is whether the reader pressed a key for them. */
  find: (before: string, asked: boolean) => Completions
  onText: (text: string) => void
  /** Enter, where no item is chosen. */
  onEnter?: () => void
}

interface CompletingBox {
  open: boolean
  shut: () => void
  /** Of the text box. */
  box: JSX.InputHTMLAttributes & { ref: RefObject<HTMLInputElement> }
  list: JSX.Element | null
}

export function useCompletions({ find, onText, onEnter }: Completing): CompletingBox {
  const id = useId()
  const ref = useRef<HTMLInputElement>(null)
  const [{ from, items }, setFound] = useState(NONE)
  const [chosen, setChosen] = useState(-1)
  const open = items.length > 0
  const place = () => ref.current!.selectionStart ?? ref.current!.value.length
  const shut = () => (setFound(NONE), setChosen(-1))
  const complete = (asked: boolean) => (setFound(find(ref.current!.value.slice(0, place()), asked)), setChosen(-1))
  const take = ({ text }: Completion) => {
    const box = ref.current!
    const head = box.value.slice(0, from) + text
    box.value = head + box.value.slice(place())
    box.focus()
    box.setSelectionRange(head.length, head.length)
    onText(box.value)
    shut()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (event.key === ' ' && event.ctrlKey) complete(true)
    else if (step && open) setChosen((chosen + step + items.length + (chosen < 0 && step < 0 ? 1 : 0)) % items.length)
    else if (event.key === 'ArrowDown') complete(true)
    else if (event.key === 'Tab' && open && !event.shiftKey) take(items[Math.max(0, chosen)]!)
    else if (event.key === 'Enter' && open && chosen >= 0) take(items[chosen]!)
    else if (event.key === 'Enter' && onEnter) onEnter()
    else if (event.key === 'Escape' && open) shut()
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  return {
    open,
    shut,
    box: {
      ref,
      'aria-autocomplete': 'list',
      'aria-controls': open ? `${id}-list` : undefined,
      'aria-activedescendant': open && chosen >= 0 ? `${id}-${chosen}` : undefined,
      spellcheck: false,
      autocomplete: 'off',
      autocapitalize: 'off',
      onInput: ({ currentTarget }) => (onText(currentTarget.value), complete(false)),
      onBlur: shut,
      onKeyDown,
    },
    list: open ? (
      <ul class="completions" id={`${id}-list`} role="listbox" aria-label="Completions">
        {items.map((item, i) => (
          <li key={item.text} id={`${id}-${i}`} role="option" aria-selected={i === chosen} ref={(row) => void (i === chosen && row?.scrollIntoView({ block: 'nearest' }))} onMouseDown={(event) => (event.preventDefault(), take(item))}>
            <code>{item.text}</code>
            {item.kind && <span class="completion-kind">{item.kind}</span>}
          </li>
        ))}
      </ul>
    ) : null,
  }
}
