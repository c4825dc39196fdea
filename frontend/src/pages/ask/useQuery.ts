// Whether the text of a query box is a valid query.

import { useEffect, useState } from 'preact/hooks'
import { ApiError, messageOf, postToRead, runPath } from '../../data/api'

const CHECK_MS = 250

/** The server's error for a query, or null; without a run nothing is known of it. */
export async function problemOf(run: string, query: string): Promise<string | null> {
  if (!run) return null
  try {
    await postToRead(runPath(run, '/check'), { query })
    return null
  } catch (error) {
    return error instanceof ApiError ? withCaret(query, error) : messageOf(error)
  }
}

/** The same while one types, a moment after the last key. */
export function useProblem(run: string, text: string): [string | null, (problem: string | null) => void] {
  const [problem, setProblem] = useState<string | null>(null)
  useEffect(() => {
    setProblem(null)
    if (!text.trim()) return
    let current = true
    const timer = setTimeout(async () => {
      const found = await problemOf(run, text)
      if (current) setProblem(found)
    }, CHECK_MS)
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [run, text])
  return [problem, setProblem]
}

/** The server's words; where they do not show the place themselves, the place is shown. */
export function withCaret(text: string, { message, position }: { message: string; position: number | null }): string {
  if (position === null || message.includes('\n')) return message
  return `${message}\n  ${text}\n  ${' '.repeat(position)}^`
}
