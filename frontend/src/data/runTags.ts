// The recorded tags of several runs, fetched again for those that grow.

import { effect } from '@preact/signals'
import { useEffect, useState } from 'preact/hooks'
import { get, messageOf, runPath } from './api'
import { versionOf } from './growth'
import { repeated } from './repeated'
import { byKey } from './runs'
import type { Tag } from './types'

interface Kept {
  tags: ReadonlyMap<string, Tag[]>
  problem: string | null
  loading: boolean
}

/** The tags of visible runs. */
export function useRunTags(keys: readonly string[]): Kept {
  const [tags, setTags] = useState<ReadonlyMap<string, Tag[]>>(new Map())
  const [problems, setProblems] = useState<ReadonlyMap<string, string>>(new Map())
  const name = keys.join('\n')
  useEffect(() => {
    const abort = new AbortController()
    const load = async (key: string) => {
      try {
        const found = (await get<{ tags: Tag[] }>(runPath(key, '/tags'), {}, abort.signal)).tags
        setTags((old) => (JSON.stringify(old.get(key)) === JSON.stringify(found) ? old : new Map(old).set(key, found)))
        setProblems((old) => (old.has(key) ? new Map([...old].filter(([one]) => one !== key)) : old))
      } catch (error) {
        if (!abort.signal.aborted) setProblems((old) => new Map(old).set(key, messageOf(error)))
      }
    }
    setTags((old) => new Map([...old].filter(([key]) => keys.includes(key))))
    const ends = keys.flatMap((key) => {
      const loading = repeated(() => load(key))
      let known: string | null = null
      const end = effect(() => {
        const version = versionOf(byKey.value.get(key))
        if (version !== known) loading.tell()
        known = version
      })
      return [end, loading.stop]
    })
    return () => {
      abort.abort()
      for (const end of ends) end()
    }
  }, [name])
  const messages = keys.flatMap((key) => problems.get(key) ?? [])
  const problem = messages.length > 1 ? `${messages[0]} (and ${messages.length - 1} more)` : (messages[0] ?? null)
  return { tags, problem, loading: keys.some((key) => !tags.has(key) && !problems.has(key)) }
}
