// One action of a run: a function of the training that controllers can call, with its arguments.

import { useState } from 'preact/hooks'
import type { ActionInfo } from '../data/types'
import { argumentOf, type Pending } from './commands'

interface ActionProps {
  name: string
  action: ActionInfo
  /** Why it cannot be called here; '' if it can. */
  off: string
  pending: Pending | null
  onCall: (keywords: Record<string, unknown>) => void
}

export function Action({ name, action: { doc, where, signature, parameters }, off, pending, onCall }: ActionProps) {
  const [texts, setTexts] = useState<Readonly<Record<string, string>>>({})
  const waits = pending !== null && !pending.problem
  const missing = parameters.filter((one) => !one.default && !texts[one.name]).map((one) => one.name)
  const why = off || (missing.length > 0 ? `Fill in ${missing.join(', ')}` : '')
  const given = parameters.filter((one) => texts[one.name]).map((one) => [one.name, argumentOf(texts[one.name]!)])
  return (
    <form class="control" aria-label={name} onSubmit={(event) => (event.preventDefault(), !why && !waits && onCall(Object.fromEntries(given)))}>
      <span class="control-name" title={`${name}${signature}\ndeclared at ${where}`}>
        {name}
        {doc && <span class="muted">{doc}</span>}
      </span>
      {parameters.map((one) => (
        <label key={one.name} class="control-argument">
          <span>
            {one.name} {one.type && <span class="muted">{one.type}</span>}
          </span>
          <input aria-label={`${one.name} of ${name}`} placeholder={one.default} disabled={Boolean(off)} value={texts[one.name] ?? ''} onInput={({ currentTarget }) => setTexts({ ...texts, [one.name]: currentTarget.value })} />
        </label>
      ))}
      <button type="submit" class="button" disabled={Boolean(why) || waits} title={why || undefined}>
        {waits ? 'Waiting …' : `Call ${name}`}
      </button>
      {waits && pending.note && <p class="control-note">{pending.note}</p>}
      {pending?.problem && (
        <p class="field-problem" role="alert">
          {pending.problem}
        </p>
      )}
    </form>
  )
}
