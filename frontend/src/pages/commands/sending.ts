// Commands that this page sent and that the training has not applied yet, or has refused.

import { signal } from '@preact/signals'
import { messageOf, post, runPath } from '../../data/api'
import { details, loadDetail } from '../../data/details'
import type { Run } from '../../data/types'
import { tell } from '../../ui/toasts'
import { outcomeOf, type Acknowledged, type Pending, type Command } from './commands'

/** The last command of each kind and name, by run. */
export const pending = signal<ReadonlyMap<string, Pending>>(new Map())
export const idOf = (run: string, { kind, name }: Command): string => `${run} ${kind} ${name ?? ''}`

function note(id: string, now: Pending | null): void {
  const next = new Map(pending.peek())
  if (now) next.set(id, now)
  else next.delete(id)
  pending.value = next
}

export const forget = (run: string, command: Command): void => note(idOf(run, command), null)

export async function send(run: Run, command: Command): Promise<void> {
  const id = idOf(run.key, command)
  // Later than all of the history by the run's own clock, which may be another machine's.
  const sent_s = Math.max(0, ...(details.peek().get(run.key)?.history ?? []).map(({ wall_time }) => wall_time ?? 0)) + 1e-6
  const now = { command, sent_s, note: '', problem: '' }
  note(id, now)
  try {
    const done = await post<Acknowledged>(runPath(run.key, '/commands'), command)
    note(id, done.applied ? null : { ...now, note: done.note || 'Waiting for the next event' })
    if (done.applied) tell('done', outcomeOf(command, done))
  } catch (error) {
    note(id, { ...now, problem: messageOf(error) })
    if (command.kind !== 'set' && command.kind !== 'call') tell('error', messageOf(error))
  }
  await loadDetail(run.key)
}
