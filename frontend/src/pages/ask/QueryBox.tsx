// The box for a query: completes from what the run offers, checks while one types, tells errors under the caret.

import { useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, get, messageOf, post, runPath } from '../../data/api'
import type { Description, FunctionInfo } from '../../data/types'
import { completionsAt, type Completion, type Completions } from './complete'

const CHECK_MS = 250
const NOTHING: Completions = { from: 0, items: [] }

interface QueryBoxProps {
  run: string
  text: string
  description: Description | null
  onText: (text: string) => void
  onAsk: (text: string) => void
}

export function QueryBox({ run, text, description, onText, onAsk }: QueryBoxProps) {
  const box = useRef<HTMLInputElement>(null)
  const functions = useFunctions()
  const problem = useProblem(run, text)
  const [found, setFound] = useState(NOTHING)
  const [chosen, setChosen] = useState(-1)

  const complete = () => {
    setFound(completionsAt(box.current!.value, box.current!.selectionStart ?? 0, description, functions))
    setChosen(-1)
  }
  const take = (item: Completion) => {
    const caret = box.current!.selectionStart ?? text.length
    const next = text.slice(0, found.from) + item.text
    onText(next + text.slice(caret))
    box.current!.focus()
    requestAnimationFrame(() => {
      box.current!.setSelectionRange(next.length, next.length)
      complete()
    })
  }
  const ask = () => {
    setFound(NOTHING)
    if (text.trim()) onAsk(text.trim())
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const { items } = found
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step && items.length) setChosen((chosen + step + items.length + (chosen < 0 && step < 0 ? 1 : 0)) % items.length)
    else if (event.key === 'Tab' && items.length && !event.shiftKey && document.activeElement === box.current) take(items[Math.max(0, chosen)]!)
    else if (event.key === 'Enter') chosen >= 0 && items[chosen] ? take(items[chosen]!) : ask()
    else if (event.key === 'Escape' && items.length) setFound(NOTHING)
    else return
    event.preventDefault()
  }

  return (
    <div class="query">
      <div class="query-line">
        <input
          ref={box}
          class="query-input"
          role="combobox"
          aria-label="Query"
          aria-expanded={found.items.length > 0}
          aria-controls="completions"
          aria-activedescendant={chosen >= 0 ? `completion-${chosen}` : undefined}
          aria-invalid={Boolean(problem)}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          data-hotkey="q"
          placeholder="batch.loss.mean(every=100)"
          value={text}
          onInput={({ currentTarget }) => (onText(currentTarget.value), complete())}
          onFocus={complete}
          onClick={complete}
          onBlur={() => setFound(NOTHING)}
          onKeyDown={onKeyDown}
        />
        <button type="button" class="button button-main" disabled={!text.trim()} onClick={ask}>
          Ask
        </button>
        {found.items.length > 0 && (
          <ul class="completions" id="completions" role="listbox" aria-label="Completions">
            {found.items.map((item, i) => (
              <li key={item.text} id={`completion-${i}`} role="option" aria-selected={i === chosen} onMouseDown={(event) => (event.preventDefault(), take(item))}>
                <code>{item.text}</code>
                <span class="muted">{item.detail}</span>
                <span class="completion-doc muted">{item.doc}</span>
              </li>
            ))}
          </ul>
        )}
      </div>
      {problem && !found.items.length && (
        <pre class="query-problem" role="alert">
          {problem}
        </pre>
      )}
    </div>
  )
}

function useFunctions(): FunctionInfo[] {
  const [functions, setFunctions] = useState<FunctionInfo[]>([])
  useEffect(() => {
    get<FunctionInfo[] | { functions: FunctionInfo[] }>('functions').then(
      (found) => setFunctions(Array.isArray(found) ? found : found.functions),
      () => undefined,
    )
  }, [])
  return functions
}

/** What is wrong with a query, a moment after the last key. */
function useProblem(run: string, text: string): string | null {
  const [problem, setProblem] = useState<string | null>(null)
  useEffect(() => {
    setProblem(null)
    if (!run || !text.trim()) return
    let current = true
    const timer = setTimeout(async () => {
      try {
        await post(runPath(run, '/check'), { query: text })
      } catch (error) {
        if (current) setProblem(error instanceof ApiError ? withCaret(text, error) : messageOf(error))
      }
    }, CHECK_MS)
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [run, text])
  return problem
}

/** The server's words; where they do not show the place themselves, the place is shown. */
export function withCaret(text: string, { message, position }: ApiError): string {
  if (position === null || message.includes('\n')) return message
  return `${message}\n  ${text}\n  ${' '.repeat(position)}^`
}
