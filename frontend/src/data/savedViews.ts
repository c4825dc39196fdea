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
