// Which part of a tensor is shown: a box a dimension, and one text for the whole, in NumPy's notation.

import { useState } from 'preact/hooks'
import { entriesOf, isFree, sliceOf } from '../../views/slices'

interface SliceBarProps {
  shape: readonly number[]
  /** The slice that is shown. */
  slice: string
  /** The slice as typed: it stays in the text box while it is invalid. */
  asked: string
  problem: string | null
  onSlice: (slice: string) => void
}

export function SliceBar({ shape, slice, asked, problem, onSlice }: SliceBarProps) {
  const shown = entriesOf(slice, shape.length) ?? shape.map(() => ':')
  const wanted = problem ? entriesOf(asked, shape.length) : null
  const entries = wanted ?? shown
  const set = (d: number, entry: string) => {
    const next = entries.map((old, i) => (i === d ? entry.trim() || ':' : old))
    if (sliceOf(next) !== sliceOf(entries)) onSlice(sliceOf(next))
  }
  const fitted = !problem && asked !== '' && asked !== slice
  return (
    <div class="slice">
      <div class="slice-boxes" role="group" aria-label="Slice">
        {entries.map((entry, d) => (
          <SliceBox key={d} dimension={d} length={shape[d]!} entry={entry} wrong={Boolean(problem)} onEntry={(next) => set(d, next)} />
        ))}
        <WholeSlice text={problem ? asked : sliceOf(entries)} wrong={Boolean(problem)} onText={onSlice} />
      </div>
      {problem && (
        <pre class="query-problem" role="alert">
          {problem}
        </pre>
      )}
      {fitted && (
        <p class="slice-note muted" role="status">
          <code>{asked}</code> does not fit the shape ({shape.join(', ')}): shown is <code>{sliceOf(entries)}</code>
        </p>
      )}
    </div>
  )
}

interface SliceBoxProps {
  dimension: number
  length: number
  entry: string
  wrong: boolean
  onEntry: (entry: string) => void
}

function SliceBox({ dimension, length, entry, wrong, onEntry }: SliceBoxProps) {
  const [text, setText] = useState<string | null>(null)
  const commit = (value: string) => {
    setText(null)
    onEntry(value)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const value = (event.currentTarget as HTMLInputElement).value
    const by = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key]
    if (event.key === 'Enter') commit(value)
    else if (event.key === 'Escape' && text !== null) setText(null)
    else if (by && !isFree(value) && Number.isInteger(Number(value)) && length > 0) commit(String(Math.max(0, Math.min(length - 1, ((Number(value) + length) % length) + by))))
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  return (
    <label class="slice-box">
      <span class="muted">
        dim {dimension} <span class="slice-length">{length.toLocaleString('en')}</span>
      </span>
      <input
        value={text ?? entry}
        size={Math.max(4, (text ?? entry).length)}
        spellcheck={false}
        autocomplete="off"
        aria-invalid={wrong}
        title={`An integer from ${-length} to ${length - 1}, or a slice such as 2:5, ::2 or ::-1. Arrow keys change an integer.`}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
        onBlur={({ currentTarget }) => text !== null && commit(currentTarget.value)}
        onKeyDown={onKeyDown}
      />
    </label>
  )
}

function WholeSlice({ text, wrong, onText }: { text: string; wrong: boolean; onText: (text: string) => void }) {
  const [local, setLocal] = useState<string | null>(null)
  const commit = (value: string) => {
    setLocal(null)
    if (value !== text) onText(value)
  }
  return (
    <label class="slice-box slice-whole">
      <span class="muted">as one text</span>
      <input
        value={local ?? text}
        spellcheck={false}
        autocomplete="off"
        aria-invalid={wrong}
        title="For example [0, ..., 2:5] or [:, ::-1]"
        onInput={({ currentTarget }) => setLocal(currentTarget.value)}
        onBlur={({ currentTarget }) => local !== null && commit(currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter') commit(event.currentTarget.value)
          else if (event.key === 'Escape' && local !== null) setLocal(null)
          else return
          event.preventDefault()
          event.stopPropagation()
        }}
      />
    </label>
  )
}
