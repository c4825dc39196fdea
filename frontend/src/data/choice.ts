// The view that streams share. The server chooses it (views/choose.py), the same on every surface.

import { useEffect, useRef, useState } from 'preact/hooks'
import { messageOf, post } from './api'
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
  const told = streams.flatMap((stream, i) => (stream.view.value ? [{ choice: stream.view.value, name: names[i]! }] : []))
  const alone = told.length === 1 && !wanted ? told[0]!.choice : null
  const request = alone || !told.length ? '' : JSON.stringify({ forms: told.map(({ choice }) => choice.form), names: told.map(({ name }) => name), view: wanted || null })
  const [choice, setChoice] = useState(NONE)
  const asked_ms = useRef(0)
  useEffect(() => {
    if (!request) return
    let current = true
    const timer = setTimeout(async () => {
      asked_ms.current = Date.now()
      const possible = told.map(({ choice: one }) => one.possible).reduce((a, b) => a.filter((view) => b.includes(view)))
      const made = await post<ViewChoice>('view', JSON.parse(request)).then(
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
  return told.length ? choice : NONE
}
