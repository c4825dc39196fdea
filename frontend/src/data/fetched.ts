// A reply of the server in a component: fetched when its key changes, and again periodically.

import { useEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from './api'

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

/** Fetch while `key` is not null; once if `every_ms` is 0. An unchanged reply is the same object. */
export function useFetched<T>(key: string | null, ask: (abort: AbortSignal) => Promise<T>, every_ms = 0): Fetched<T> {
  const [kept, setKept] = useState<Kept<T>>({ key: '', value: null, problem: null, written: '' })
  const latest = useRef(ask)
  latest.current = ask

  useEffect(() => {
    if (key === null) return
    const abort = new AbortController()
    let timer = 0
    const run = async () => {
      try {
        const value = await latest.current(abort.signal)
        const written = every_ms ? JSON.stringify(value) : ''
        setKept((old) => (old.key === key && !old.problem && every_ms && old.written === written ? old : { key, value, problem: null, written }))
      } catch (error) {
        if (abort.signal.aborted) return
        setKept((old) => ({ ...old, key, problem: messageOf(error) }))
      }
      if (every_ms && !abort.signal.aborted) timer = window.setTimeout(again, every_ms)
    }
    const again = () => (document.hidden ? (timer = window.setTimeout(again, every_ms)) : void run())
    void run()
    return () => {
      abort.abort()
      clearTimeout(timer)
    }
  }, [key, every_ms])

  const fresh = kept.key === key
  return { value: key === null ? null : kept.value, fresh: fresh && !kept.problem, problem: fresh ? kept.problem : null }
}
