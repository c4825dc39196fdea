// One action of a run: a function of the training that controllers can call.

import type { Pending } from './commands'

interface ActionProps {
  name: string
  doc: string
  where: string
  /** Why it cannot be called here; '' if it can. */
  off: string
  pending: Pending | null
  onCall: () => void
}

export function Action({ name, doc, where, off, pending, onCall }: ActionProps) {
  const waits = pending !== null && !pending.problem
  return (
    <div class="control">
      <span class="control-name" title={`Declared at ${where}`}>
        {name}
        {doc && <span class="muted">{doc}</span>}
      </span>
      <button type="button" class="button" disabled={Boolean(off) || waits} title={off || undefined} onClick={onCall}>
        {waits ? 'Waiting …' : `Call ${name}`}
      </button>
      {waits && pending.note && <p class="control-note">{pending.note}</p>}
      {pending?.problem && (
        <p class="field-problem" role="alert">
          {pending.problem}
        </p>
      )}
    </div>
  )
}
