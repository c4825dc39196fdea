// What people wrote down about a run: its name, labels and notes, for controllers to change.

import { useState } from 'preact/hooks'
import { annotate } from '../../data/annotate'
import { session } from '../../data/session'
import type { Run } from '../../data/types'
import { Markdown } from '../media/Markdown'
import { LabelBox, Labels } from './Labels'

const MAX_NAME = 200
const MAX_NOTES = 20_000

export function Annotated({ run: { key, name, own_name, annotations } }: { run: Run }) {
  const { labels, notes } = annotations
  const [draft, setDraft] = useState<{ name: string; notes: string } | null>(null)
  const may = session.value?.role === 'controller'
  if (!may && !labels.length && !notes && !annotations.baseline) return null
  const save = () => {
    if (!draft) return
    const renamed = draft.name.trim() !== name && { name: draft.name.trim() === own_name ? '' : draft.name }
    const written = draft.notes !== notes && { notes: draft.notes }
    if (renamed || written) void annotate([key], { ...renamed, ...written }, 'Saved')
    setDraft(null)
  }
  return (
    <section class="annotated" aria-label="Name, labels and notes">
      <div class="annotated-labels">
        <Labels of={annotations} onRemove={may ? (label) => void annotate([key], { remove_labels: [label] }, `No longer ${label}`) : undefined} />
        {may && <LabelBox onLabel={(label) => void annotate([key], { add_labels: [label] }, `Labelled ${label}`)} />}
      </div>
      {notes && !draft && <Markdown text={notes} />}
      {may && !draft && (
        <button type="button" class="text-button" onClick={() => setDraft({ name, notes })}>
          {notes ? 'Edit name and notes' : 'Rename, or write notes'}
        </button>
      )}
      {draft && (
        <form class="annotated-form" onSubmit={(event) => (event.preventDefault(), save())}>
          <input aria-label="Name" maxLength={MAX_NAME} placeholder={own_name} value={draft.name} onInput={({ currentTarget }) => setDraft({ ...draft, name: currentTarget.value })} />
          <textarea aria-label="Notes" rows={6} maxLength={MAX_NOTES} placeholder="Notes in Markdown" value={draft.notes} onInput={({ currentTarget }) => setDraft({ ...draft, notes: currentTarget.value })} />
          <span class="details-buttons">
            <button type="submit" class="button button-main">
              Save
            </button>
            <button type="button" class="button" onClick={() => setDraft(null)}>
              Cancel
            </button>
          </span>
        </form>
      )}
    </section>
  )
}
