// A number to type: kept as a draft until Enter or leaving the field, so that a redraw of the page does not wipe what is being typed.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'

interface NumberInputProps extends Omit<JSX.InputHTMLAttributes<HTMLInputElement>, 'value' | 'type'> {
  value: number
  /** Called with the number typed; an empty field changes nothing. */
  onNumber: (value: number) => void
}

export function NumberInput({ value, onNumber, ...attributes }: NumberInputProps) {
  const [draft, setDraft] = useState<string | null>(null)
  return (
    <input
      {...attributes}
      type="number"
      value={draft ?? value}
      onInput={({ currentTarget }) => setDraft(currentTarget.value)}
      onBlur={() => setDraft(null)}
      onChange={({ currentTarget }) => {
        setDraft(null)
        if (currentTarget.value !== '') onNumber(currentTarget.valueAsNumber)
      }}
    />
  )
}
