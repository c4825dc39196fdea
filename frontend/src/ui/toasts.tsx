// Short news at the edge: what failed, and what was done.

import { signal } from '@preact/signals'
import { messageOf } from '../data/api'
import { IconButton } from './parts'

interface Toast {
  id: number
  kind: 'error' | 'done'
  text: string
}

const LASTS_MS = { error: 12_000, done: 4_000 }
const toasts = signal<Toast[]>([])
let lastId = 0

export function tell(kind: Toast['kind'], text: string): void {
  const rest = toasts.peek().filter((toast) => toast.text !== text)
  const toast = { id: ++lastId, kind, text }
  toasts.value = [...rest.slice(-3), toast]
  setTimeout(() => dismiss(toast.id), LASTS_MS[kind])
}

export const tellError = (error: unknown): void => tell('error', messageOf(error))

const dismiss = (id: number): void => void (toasts.value = toasts.peek().filter((toast) => toast.id !== id))

export function Toasts() {
  return (
    <div class="toasts" role="region" aria-label="Notices">
      {toasts.value.map(({ id, kind, text }) => (
        <div key={id} class={`toast toast-${kind}`} role={kind === 'error' ? 'alert' : 'status'}>
          <p>{text}</p>
          <IconButton icon="close" label="Dismiss" onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  )
}
