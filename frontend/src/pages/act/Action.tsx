// A function that the run lets clients call; it runs in the training itself.

import type { Underway } from './acts'

interface ActionProps {
  name: string
  doc: string
  where: string
  /** Why it cannot be called from here; '' where it can. */
  off: string
  underway: Underway | null
  onCall: () => void
}

export function Action({ name, doc, where, off, underway, onCall }: ActionProps) {
  const waits = underway !== null && !underway.problem
  return (
    <div class="control">
      <span class="control-name" title={`Declared at ${where}`}>
        {name}
        {doc && <span class="muted">{doc}</span>}
      </span>
      <button type="button" class="button" disabled={Boolean(off) || waits} title={off || undefined} onClick={onCall}>
        {waits ? 'Waiting …' : `Call ${name}`}
      </button>
      {waits && underway.note && <p class="control-note">{underway.note}</p>}
      {underway?.problem && (
        <p class="field-problem" role="alert">
          {underway.problem}
        </p>
      )}
    </div>
  )
}
