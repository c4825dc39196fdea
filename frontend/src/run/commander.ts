// The commands of one run that were sent from here and that the training has not applied yet, or has refused.

import { signal } from '@preact/signals'
import type { Acknowledgement, HistoryEntry } from '../data/types'
import { outcomeOf, stillPending, type Command, type Pending } from './commands'

/** How commands reach a run and what comes back: requests to the page's server, or messages to a notebook's kernel. */
export interface CommandTransport {
  send: (command: Command) => Promise<Acknowledgement>
  /** The commands that the run has applied. */
  history: () => readonly HistoryEntry[]
  /** Show in a line what a command did, or why it failed. */
  tell: (kind: 'done' | 'error', text: string) => void
  /** Read the run's state again. */
  refresh: () => Promise<void> | void
}

/** After this, a person begins to wonder. */
const SILENT_MS = 1_500

export class Commander {
  /** The last command of each kind and name. */
  private readonly sent = signal<ReadonlyMap<string, Pending>>(new Map())

  constructor(private readonly transport: CommandTransport) {}

  /** A command as long as it is pending or refused. */
  pending(command: Command): Pending | null {
    return stillPending(this.sent.value.get(idOf(command)), this.transport.history())
  }

  forget(command: Command): void {
    this.note(command, null)
  }

  async send(command: Command): Promise<void> {
    // Later than all of the history by the run's own clock, which may be another machine's.
    const sent_s = Math.max(0, ...this.transport.history().map(({ wall_time }) => wall_time ?? 0)) + 1e-6
    const now = { command, sent_s, note: '', problem: '' }
    this.note(command, now)
    const timer = setTimeout(() => {
      if (this.sent.peek().get(idOf(command)) === now) this.note(command, { ...now, note: waitingFor(command) })
    }, SILENT_MS)
    try {
      const done = await this.transport.send(command)
      this.note(command, done.applied ? null : { ...now, note: done.note || waitingFor(command) })
      if (done.applied) this.transport.tell('done', outcomeOf(command, done))
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error)
      this.note(command, { ...now, problem })
      if (command.kind !== 'set' && command.kind !== 'call') this.transport.tell('error', problem)
    }
    clearTimeout(timer)
    await this.transport.refresh()
  }

  private note(command: Command, now: Pending | null): void {
    const next = new Map(this.sent.peek())
    if (now) next.set(idOf(command), now)
    else next.delete(idOf(command))
    this.sent.value = next
  }
}

const waitingFor = ({ at }: Command): string => `Waiting for the next event${at ? ` ${at}` : ''}`

const idOf = ({ kind, name }: Command): string => `${kind} ${name ?? ''}`
