// The labels of runs, whether they are baselines, and a box for another label.

import { useId, useState } from 'preact/hooks'
import { runs } from '../../data/runs'
import type { Annotations } from '../../data/types'
import { Icon } from '../../ui/Icon'

interface LabelsProps {
  of: Pick<Annotations, 'labels' | 'baseline'>
  onRemove?: ((label: string) => void) | undefined
}

export function Labels({ of: { labels, baseline }, onRemove }: LabelsProps) {
  return (
    <>
      {baseline && <span class="label label-baseline">baseline</span>}
      {labels.map((label) => (
        <span key={label} class="label" title={label}>
          <span>{label}</span>
          {onRemove && (
            <button type="button" aria-label={`Remove the label ${label}`} title={`Remove the label ${label}`} onClick={() => onRemove(label)}>
              <Icon name="close" size={12} />
            </button>
          )}
        </span>
      ))}
    </>
  )
}

/** A box for a label, which offers those that runs have. */
export function LabelBox({ onLabel }: { onLabel: (label: string) => void }) {
  const id = useId()
  const [text, setText] = useState('')
  const known = [...new Set((runs.value ?? []).flatMap((run) => run.annotations.labels))].sort()
  return (
    <form
      class="label-box"
      onSubmit={(event) => {
        event.preventDefault()
        if (text.trim()) onLabel(text.trim())
        setText('')
      }}
    >
      <input aria-label="Add a label" placeholder="Add a label" list={id} maxLength={100} autocomplete="off" value={text} onInput={({ currentTarget }) => setText(currentTarget.value)} />
      <datalist id={id}>
        {known.map((label) => (
          <option key={label} value={label} />
        ))}
      </datalist>
    </form>
  )
}
