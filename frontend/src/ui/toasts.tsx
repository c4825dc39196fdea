// Short news at the edge: what failed, and what was done.

import { effect, signal } from '@preact/signals'
import { render } from 'preact'
import { messageOf } from '../data/api'
import { dialogs, IconButton } from './parts'

interface Toast {
  id: number
  kind: 'error' | 'done'
  text: string
  undo?: (() => void) | undefined
}

const LASTS_MS = { error: 12_000, done: 4_000 }
const toasts = signal<Toast[]>([])
let lastId = 0

/** Tell what failed or was done; what can be undone is offered for as long as a failure is shown. */
export function tell(kind: Toast['kind'], text: string, undo?: () => void): void {
  const rest = toasts.peek().filter((toast) => toast.text !== text)
  const toast = { id: ++lastId, kind, text, undo }
  toasts.value = [...rest.slice(-3), toast]
  setTimeout(() => dismiss(toast.id), LASTS_MS[undo ? 'error' : kind])
}

export const tellError = (error: unknown): void => tell('error', messageOf(error))

const dismiss = (id: number): void => void (toasts.value = toasts.peek().filter((toast) => toast.id !== id))

/** Show notices, in the topmost dialog while one is open. */
export function showToasts(): void {
  const box = document.createElement('div')
  render(<Toasts />, box)
  effect(() => (dialogs.value.at(-1) ?? document.body).append(box))
}

function Toasts() {
  return (
    <div class="toasts" role="region" aria-label="Notices">
      {toasts.value.map(({ id, kind, text, undo }) => (
        <div key={id} class={`toast toast-${kind}`} role={kind === 'error' ? 'alert' : 'status'}>
          <p>{text}</p>
          {undo && (
            <button type="button" class="text-button" onClick={() => (dismiss(id), undo())}>
              Undo
            </button>
          )}
          <IconButton icon="close" label="Dismiss" onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  )
}
