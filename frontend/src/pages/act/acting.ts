// Acts on their way: asked by this page, not yet applied by the training, or refused by it.

import { signal } from '@preact/signals'
import { messageOf, post, runPath } from '../../data/api'
import { details, loadDetail } from '../../data/details'
import type { Run } from '../../data/types'
import { tell } from '../../ui/toasts'
import { toldOf, type Acknowledged, type Underway, type Wanted } from './acts'

/** What was asked last, by run and by what it is about. */
export const underway = signal<ReadonlyMap<string, Underway>>(new Map())
export const idOf = (run: string, { kind, name }: Wanted): string => `${run} ${kind} ${name ?? ''}`

function note(id: string, now: Underway | null): void {
  const next = new Map(underway.peek())
  if (now) next.set(id, now)
  else next.delete(id)
  underway.value = next
}

export const forget = (run: string, wanted: Wanted): void => note(idOf(run, wanted), null)

export async function act(run: Run, wanted: Wanted): Promise<void> {
  const id = idOf(run.key, wanted)
  // The run's clock decides what came later, and it may be another machine's.
  const asked_s = Math.max(0, ...(details.peek().get(run.key)?.history ?? []).map(({ wall_time }) => wall_time ?? 0)) + 1e-6
  const now = { wanted, asked_s, note: '', problem: '' }
  note(id, now)
  try {
    const done = await post<Acknowledged>(runPath(run.key, '/acts'), wanted)
    note(id, done.applied ? null : { ...now, note: done.note || 'It waits for the next event' })
    if (done.applied) tell('done', toldOf(wanted, done))
  } catch (error) {
    note(id, { ...now, problem: messageOf(error) })
    if (wanted.kind !== 'set' && wanted.kind !== 'call') tell('error', messageOf(error))
  }
  await loadDetail(run.key)
}
