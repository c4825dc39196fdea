// A box for an expression over tags: completes tags.

import { useId, useRef, useState } from 'preact/hooks'
import { scalarTags } from '../../data/tags'

const MAX_ITEMS = 30

/** The tags that the end of a text may become, and where it begins. */
export function tagsAt(before: string, tags: Iterable<string>): { from: number; items: string[] } {
  const word = /[\w./@-]*$/.exec(before)![0]
  const wanted = word.toLowerCase()
  const found = word ? [...tags].filter((tag) => tag !== word && tag.toLowerCase().includes(wanted)) : []
  const begins = (tag: string) => Number(!tag.toLowerCase().startsWith(wanted))
  return { from: before.length - word.length, items: found.sort((a, b) => begins(a) - begins(b)).slice(0, MAX_ITEMS) }
}

interface ExpressionInputProps {
  text: string
  onText: (text: string) => void
  onAdd: () => void
}

export function ExpressionInput({ text, onText, onAdd }: ExpressionInputProps) {
  const id = useId()
  const box = useRef<HTMLInputElement>(null)
  const [found, setFound] = useState<{ from: number; items: string[] }>({ from: 0, items: [] })
  const [chosen, setChosen] = useState(-1)
  const open = found.items.length > 0
  const shut = () => (setFound({ from: 0, items: [] }), setChosen(-1))
  const take = (tag: string) => {
    const { value, selectionStart } = box.current!
    const head = value.slice(0, found.from) + tag
    box.current!.value = head + value.slice(selectionStart ?? value.length)
    box.current!.setSelectionRange(head.length, head.length)
    onText(box.current!.value)
    shut()
  }
  const add = () => (onAdd(), shut())
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step && open) setChosen((chosen + step + found.items.length + (chosen < 0 && step < 0 ? 1 : 0)) % found.items.length)
    else if (event.key === 'Tab' && open && !event.shiftKey) take(found.items[Math.max(0, chosen)]!)
    else if (event.key === 'Enter' && open && chosen >= 0) take(found.items[chosen]!)
    else if (event.key === 'Enter') add()
    else if (event.key === 'Escape' && open) shut()
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  return (
    <div class="own-expression">
      <input
        ref={box}
        value={text}
        placeholder="train/loss - val/loss"
        aria-label="Expression over tags"
        title="An expression over tags, in the syntax of queries: train/loss - val/loss, log(train/loss), train/loss.ema(0.1)"
        aria-autocomplete="list"
        aria-controls={open ? `${id}-list` : undefined}
        aria-activedescendant={open && chosen >= 0 ? `${id}-${chosen}` : undefined}
        spellcheck={false}
        autocomplete="off"
        onInput={({ currentTarget: { value, selectionStart } }) => {
          onText(value)
          setFound(tagsAt(value.slice(0, selectionStart ?? value.length), scalarTags.peek().keys()))
          setChosen(-1)
        }}
        onBlur={shut}
        onKeyDown={onKeyDown}
      />
      <button type="button" class="button" aria-label="Add the expression" disabled={!text.trim()} onClick={add}>
        Add
      </button>
      {open && (
        <ul class="completions" id={`${id}-list`} role="listbox" aria-label="Completions">
          {found.items.map((tag, i) => (
            <li key={tag} id={`${id}-${i}`} role="option" aria-selected={i === chosen} ref={(row) => void (i === chosen && row?.scrollIntoView({ block: 'nearest' }))} onMouseDown={(event) => (event.preventDefault(), take(tag))}>
              <code>{tag}</code>
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
