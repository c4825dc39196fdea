// The view that streams share. The server chooses it (views/choose.py), the same on every surface.

import { useEffect, useRef, useState } from 'preact/hooks'
import { messageOf, postToRead } from './api'
import type { Stream, ViewChoice } from './stream'

const PAUSE_MS = 250

export interface Choice {
  /** '' while it is not known yet. */
  view: string
  possible: readonly string[]
  problem: string | null
}

const NONE: Choice = { view: '', possible: [], problem: null }

/** The view of streams, named for messages; `wanted` overrides, where it can. */
export function useChoice(streams: readonly Stream[], names: readonly string[], wanted: string): Choice {
  // Streams of one form are one for the choice: a fleet's panel need not wait for all of its runs.
  const forms = new Map<string, { choice: ViewChoice; name: string }>()
  streams.forEach(({ view: { value: choice } }, i) => {
    const form = choice && JSON.stringify(choice.form)
    if (choice && !forms.has(form!)) forms.set(form!, { choice, name: names[i]! })
  })
  const known = [...forms.values()]
  const alone = known.length === 1 && !wanted ? known[0]!.choice : null
  const request = alone || !known.length ? '' : JSON.stringify({ forms: known.map(({ choice }) => choice.form), names: known.map(({ name }) => name), view: wanted || null })
  const [choice, setChoice] = useState(NONE)
  const asked_ms = useRef(0)
  useEffect(() => {
    if (!request) return
    let current = true
    const timer = setTimeout(async () => {
      asked_ms.current = Date.now()
      const possible = known.map(({ choice: one }) => one.possible).reduce((a, b) => a.filter((view) => b.includes(view)))
      const made = await postToRead<ViewChoice>('view', JSON.parse(request)).then(
        (answer): Choice => ({ view: answer.view, possible: answer.possible, problem: null }),
        (error): Choice => ({ view: '', possible, problem: messageOf(error) }),
      )
      if (current) setChoice(made)
    }, Math.max(0, asked_ms.current + PAUSE_MS - Date.now()))
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [request])
  if (alone) return { view: alone.view, possible: alone.possible, problem: null }
  return known.length ? choice : NONE
}
