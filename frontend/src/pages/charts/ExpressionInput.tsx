// A box for an expression over tags: completes tags.

import { scalarTags } from '../../data/tags'
import { useCompletions, type Completions } from '../../ui/completions'

const MAX_ITEMS = 30

/** The tags that the end of a text may become, and where it begins. */
export function tagsAt(before: string, tags: Iterable<string>): Completions {
  const word = /[\w./@-]*$/.exec(before)![0]
  const wanted = word.toLowerCase()
  const found = word ? [...tags].filter((tag) => tag !== word && tag.toLowerCase().includes(wanted)) : []
  const begins = (tag: string) => Number(!tag.toLowerCase().startsWith(wanted))
  return { from: before.length - word.length, items: found.sort((a, b) => begins(a) - begins(b)).slice(0, MAX_ITEMS).map((text) => ({ text })) }
}

interface ExpressionInputProps {
  text: string
  onText: (text: string) => void
  onAdd: () => void
}

export function ExpressionInput({ text, onText, onAdd }: ExpressionInputProps) {
  const add = () => (onAdd(), shut())
  const { shut, box, list } = useCompletions({ find: (before) => tagsAt(before, scalarTags.peek().keys()), onText, onEnter: add })
  return (
    <div class="own-expression">
      <input
        {...box}
        value={text}
        placeholder="train/loss - val/loss"
        aria-label="Expression over tags"
        title="An expression over tags, in the syntax of queries: train/loss - val/loss, log(train/loss), train/loss.ema(0.1)"
      />
      <button type="button" class="button" aria-label="Add the expression" disabled={!text.trim()} onClick={add}>
        Add
      </button>
      {list}
    </div>
  )
}
