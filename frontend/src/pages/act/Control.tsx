// One control of a run: changed here, applied by the training at its next event.

import { useState } from 'preact/hooks'
import type { ControlInfo } from '../../data/types'
import { value as shown } from '../../views/format'
import { kindOf, placeOf, problemOf, valueAt } from './controls'

interface ControlProps {
  name: string
  control: ControlInfo
  disabled: boolean
  onSet: (value: unknown) => Promise<void>
}

export function Control({ name, control, disabled, onSet }: ControlProps) {
  const [draft, setDraft] = useState<unknown>(undefined)
  const [busy, setBusy] = useState(false)
  const now = draft === undefined ? control.value : draft
  const changed = draft !== undefined && draft !== control.value
  const numeric = typeof control.value === 'number'
  const problem = changed && numeric ? problemOf(control, Number(draft)) : null
  const set = async (to: unknown) => {
    setBusy(true)
    await onSet(to)
    setBusy(false)
    setDraft(undefined)
  }
  const off = disabled || busy
  return (
    <form class="control" aria-label={name} onSubmit={(event) => (event.preventDefault(), changed && !problem && void set(now))}>
      <span class="control-name" title={`Declared at ${control.where}`}>
        {name}
        <span class="muted">{boundsOf(control)}</span>
      </span>
      <Field name={name} control={control} now={now} off={off} onDraft={setDraft} onSet={(to) => void set(to)} />
      {changed && numeric && (
        <span class="control-buttons">
          <button type="submit" class="button button-main" disabled={off || Boolean(problem)}>
            Set to {shown(now)}
          </button>
          <button type="button" class="button" disabled={busy} onClick={() => setDraft(undefined)}>
            Back to {shown(control.value)}
          </button>
        </span>
      )}
      {problem && <p class="field-problem">{problem}</p>}
    </form>
  )
}

function boundsOf({ type, min, max, choices }: ControlInfo): string {
  if (choices?.length || type === 'bool') return ''
  if (min !== null && max !== null) return `${type}, ${shown(min)} to ${shown(max)}`
  if (min !== null) return `${type}, at least ${shown(min)}`
  return max !== null ? `${type}, at most ${shown(max)}` : type
}

interface FieldProps {
  name: string
  control: ControlInfo
  now: unknown
  off: boolean
  onDraft: (value: unknown) => void
  onSet: (value: unknown) => void
}

function Field({ name, control, now, off, onDraft, onSet }: FieldProps) {
  const kind = kindOf(control)
  if (kind === 'switch') {
    return (
      <button type="button" class="switch" role="switch" aria-label={name} aria-checked={Boolean(now)} disabled={off} onClick={() => onSet(!now)}>
        <span />
      </button>
    )
  }
  if (kind === 'choice') {
    const choices = control.choices!
    return (
      <select aria-label={name} disabled={off} value={choices.indexOf(now)} onChange={({ currentTarget }) => onSet(choices[Number(currentTarget.value)])}>
        {choices.map((choice, i) => (
          <option key={i} value={i}>
            {shown(choice)}
          </option>
        ))}
      </select>
    )
  }
  if (kind === 'text') return <input aria-label={name} disabled={off} value={String(now)} onChange={({ currentTarget }) => onSet(currentTarget.value)} />
  return (
    <span class="control-number">
      {kind === 'slider' && (
        <input type="range" min="0" max="1000" step="1" aria-label={`${name}, slider`} aria-valuetext={shown(now)} disabled={off} value={placeOf(control, Number(now))} onInput={({ currentTarget }) => onDraft(valueAt(control, Number(currentTarget.value)))} />
      )}
      <input type="number" step="any" aria-label={name} disabled={off} value={String(now)} onInput={({ currentTarget }) => onDraft(currentTarget.value === '' ? undefined : Number(currentTarget.value))} />
    </span>
  )
}
