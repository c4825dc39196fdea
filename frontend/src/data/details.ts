// Everything about a run: what it offers, who asks it what, what was done to it. Fetched while somebody looks.

import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { get, messageOf, runPath } from './api'
import { byKey } from './runs'
import type { Act, RunDetail } from './types'

const REFRESH_MS = 2_000

export const details = signal<ReadonlyMap<string, RunDetail>>(new Map())
export const detailProblems = signal<ReadonlyMap<string, string>>(new Map())
export const histories = signal<ReadonlyMap<string, Act[]>>(new Map())

export async function loadDetail(key: string): Promise<void> {
  try {
    const detail = await get<RunDetail>(runPath(key))
    details.value = new Map(details.peek()).set(key, detail)
    histories.value = new Map(histories.peek()).set(key, detail.history ?? [])
    const rest = new Map(detailProblems.peek())
    if (rest.delete(key)) detailProblems.value = rest
  } catch (error) {
    detailProblems.value = new Map(detailProblems.peek()).set(key, messageOf(error))
  }
}

/** The details of a run, kept fresh while the run lives. */
export function useDetail(key: string): { detail: RunDetail | null; problem: string | null } {
  useEffect(() => {
    if (!key) return
    void loadDetail(key)
    const timer = setInterval(() => {
      if (!document.hidden && byKey.peek().get(key)?.live) void loadDetail(key)
    }, REFRESH_MS)
    return () => clearInterval(timer)
  }, [key])
  return { detail: details.value.get(key) ?? null, problem: detailProblems.value.get(key) ?? null }
}
