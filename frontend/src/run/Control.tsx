// One control of a run: its value in the run, the draft in this field, and the value that was sent.

import { useState } from 'preact/hooks'
import type { ControlInfo } from '../data/types'
import { value as shown } from '../views/format'
import type { Pending } from './commands'
import { boundsOf, kindOf, placeOf, problemOf, valueAt } from './controls'

interface ControlProps {
  name: string
  control: ControlInfo
  /** Why it cannot be changed here; '' if it can. */
  off: string
  pending: Pending | null
  onSet: (value: unknown) => void
  onForget: () => void
}

export function Control({ name, control, off, pending, onSet, onForget }: ControlProps) {
  const [draft, setDraft] = useState<unknown>(undefined)
  const kind = kindOf(control)
  const changed = draft !== undefined && draft !== control.value
  const now = draft === undefined ? control.value : draft
  const numeric = kind === 'slider' || kind === 'number'
  const problem = changed && numeric ? problemOf(control, Number(draft)) : null
  const change = (value: unknown) => (onForget(), setDraft(value))
  const set = (value: unknown) => {
    setDraft(undefined)
    onSet(value)
  }
  return (
    <form class="control" aria-label={name} onSubmit={(event) => (event.preventDefault(), changed && !problem && !off && set(now))}>
      <span class="control-name" title={`Declared at ${control.where}`}>
        {name}
        <span class="muted">{boundsOf(control)}</span>
      </span>
      <Field name={name} control={control} now={now} off={off} onDraft={change} onSet={set} />
      <p class="control-note">
        <span>
          now <b>{shown(control.value)}</b>
        </span>
        {pending && !pending.problem && (
          <span class="control-pending">
            sent <b>{shown(pending.command.value)}</b> {pending.note || 'waiting …'}
          </span>
        )}
        {changed && (
          <span class="control-buttons">
            <button type="submit" class="button button-main" disabled={Boolean(off || problem)}>
              Set to {shown(now)}
            </button>
            <button type="button" class="button" onClick={() => setDraft(undefined)}>
              Back to {shown(control.value)}
            </button>
          </span>
        )}
      </p>
      {(problem ?? pending?.problem) && (
        <p class="field-problem" role="alert">
          {problem ?? pending?.problem}
        </p>
      )}
    </form>
  )
}

interface FieldProps {
  name: string
  control: ControlInfo
  now: unknown
  off: string
  onDraft: (value: unknown) => void
  onSet: (value: unknown) => void
}

function Field({ name, control, now, off, onDraft, onSet }: FieldProps) {
  const kind = kindOf(control)
  const common = { 'aria-label': name, disabled: Boolean(off), title: off || undefined }
  if (kind === 'switch') {
    return (
      <button type="button" class="switch" role="switch" aria-checked={Boolean(now)} {...common} onClick={() => onSet(!now)}>
        <span />
      </button>
    )
  }
  if (kind === 'choice') {
    const choices = control.choices!
    return (
      <select {...common} value={choices.indexOf(now)} onChange={({ currentTarget }) => onSet(choices[Number(currentTarget.value)])}>
        {choices.map((choice, i) => (
          <option key={i} value={i}>
            {shown(choice)}
          </option>
        ))}
      </select>
    )
  }
  if (kind === 'text') return <input {...common} value={String(now)} onInput={({ currentTarget }) => onDraft(currentTarget.value)} />
  return (
    <span class="control-number">
      {kind === 'slider' && (
        <input type="range" min="0" max="1000" step="1" {...common} aria-label={`${name}, slider`} aria-valuetext={shown(now)} value={placeOf(control, Number(now))} onInput={({ currentTarget }) => onDraft(valueAt(control, Number(currentTarget.value)))} />
      )}
      <input type="number" step="any" {...common} value={String(now)} onInput={({ currentTarget }) => onDraft(currentTarget.value === '' ? undefined : Number(currentTarget.value))} />
    </span>
  )
}
