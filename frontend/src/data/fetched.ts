// A reply of the server in a component: fetched when its key changes, and again when there is news.

import { useEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from './api'
import { repeated, type Repeated } from './repeated'

export interface Fetched<T> {
  /** The answer to the key as it is now, else to the last one that was answered. */
  value: T | null
  /** Whether `value` answers the key as it is now. */
  fresh: boolean
  problem: string | null
}

interface Kept<T> {
  key: string
  value: T | null
  problem: string | null
  written: string
}

/** Fetch while `key` is not null, and again when `version` changes. An unchanged reply is the same object. */
export function useFetched<T>(key: string | null, ask: (abort: AbortSignal) => Promise<T>, version?: string): Fetched<T> {
  const [kept, setKept] = useState<Kept<T>>({ key: '', value: null, problem: null, written: '' })
  const latest = useRef(ask)
  latest.current = ask
  const grows = version !== undefined
  const fetching = useRef<Repeated | null>(null)

  useEffect(() => {
    if (key === null) return
    const abort = new AbortController()
    const run = async () => {
      try {
        const value = await latest.current(abort.signal)
        const written = grows ? JSON.stringify(value) : ''
        setKept((old) => (old.key === key && !old.problem && grows && old.written === written ? old : { key, value, problem: null, written }))
      } catch (error) {
        if (abort.signal.aborted) return
        setKept((old) => ({ ...old, key, problem: messageOf(error) }))
      }
    }
    const mine = repeated(run)
    fetching.current = mine
    return () => {
      abort.abort()
      mine.stop()
    }
  }, [key])
  useEffect(() => fetching.current?.tell(), [key, version])

  const fresh = kept.key === key
  return { value: key === null ? null : kept.value, fresh: fresh && !kept.problem, problem: fresh ? kept.problem : null }
}
