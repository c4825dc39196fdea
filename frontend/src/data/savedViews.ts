// Saved views: names for addresses of the page, kept beside the runs.

import { signal } from '@preact/signals'
import { writeAddress } from '../state/state'
import { tell, tellError } from '../ui/toasts'
import { get, post } from './api'

interface Answer {
  views: Record<string, string>
}

/** The addresses by their names; null until they are known. */
export const savedViews = signal<Record<string, string> | null>(null)

const taking = async (answer: Promise<Answer>): Promise<boolean> =>
  answer.then(
    ({ views }) => ((savedViews.value = views), true),
    (error: unknown) => (tellError(error), false),
  )

export const loadViews = (): Promise<boolean> => taking(get<Answer>('saved-views'))

const send = (name: string, address: string | null): Promise<boolean> => taking(post<Answer>('saved-views', { name, address }))

/** What the page shows now. */
export function addressNow(): string {
  writeAddress()
  return location.hash || '#/charts'
}

/** Save an address under a name, or remove the view with null; can be undone. */
export async function saveView(name: string, address: string | null): Promise<void> {
  const before = savedViews.peek()?.[name] ?? null
  if (await send(name, address)) tell('done', address === null ? `Removed ${name}` : before ? `Replaced ${name}` : `Saved ${name}`, () => void send(name, before))
}

const sendName = (name: string, renamed: string): Promise<boolean> => taking(post<Answer>('saved-views/name', { name, renamed }))

/** Give a view another name; can be undone. Returns whether it has that name now. */
export async function renameView(name: string, renamed: string): Promise<boolean> {
  const done = name === renamed || (await sendName(name, renamed))
  if (done && name !== renamed) tell('done', `Renamed ${name}`, () => void sendName(renamed, name))
  return done
}
