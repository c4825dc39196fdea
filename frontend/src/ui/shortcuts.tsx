// Keyboard shortcuts that work everywhere except in text boxes, and the sheet that lists them.

import { signal } from '@preact/signals'
import { Dialog } from './parts'

export interface Shortcut {
  keys: string
  does: string
  run?: () => void
}

export const helpOpen = signal(false)

/** Whether a key pressed here belongs to something that takes text. */
function takesText(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null
  return Boolean(element?.closest?.('input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable]'))
}

export function followKeys(shortcuts: readonly Shortcut[]): void {
  let before = ''
  let when = 0
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || takesText(event.target)) return
    if (document.querySelector('dialog[open]') && event.key !== '?') return
    // Two-key shortcuts, "g c": the second within a second.
    const pair = `${before} ${event.key}`
    const fresh = event.timeStamp - when < 1_000
    const found = shortcuts.find(({ keys, run }) => run && (fresh && keys === pair ? true : keys === event.key))
    before = event.key
    when = event.timeStamp
    if (!found) return
    event.preventDefault()
    found.run!()
  })
}

export function focusHotkey(hotkey: string): void {
  const all = [...document.querySelectorAll<HTMLInputElement>(`[data-hotkey="${hotkey}"]`)]
  all.find((input) => input.offsetParent !== null)?.focus()
}

export function HelpSheet({ shortcuts }: { shortcuts: readonly Shortcut[] }) {
  return (
    <Dialog label="Keyboard shortcuts" onClose={() => (helpOpen.value = false)}>
      <h2>Keys and gestures</h2>
      <dl class="keys">
        {shortcuts.map(({ keys, does }) => (
          <div key={does}>
            <dt>{keys.split(' ').map((key) => <kbd key={key}>{key}</kbd>)}</dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <p class="muted">
        Filter runs by <code>regex</code>, <code>lr=0.01</code>, <code>lr&lt;0.1</code>, <code>opt.name~adam|sgd</code>,{' '}
        <code>state=running</code>, <code>!seed=1</code>; a run must match
        all words. The address holds the whole view: copy it to share the view.
      </p>
      <form method="dialog">
        <button type="button" class="button" onClick={() => (helpOpen.value = false)}>
          Close
        </button>
      </form>
    </Dialog>
  )
}
