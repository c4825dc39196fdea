// Changes of runs' annotations, and what undoes them.

import type { Annotations } from './types'

export interface Edit {
  name?: string
  labels?: readonly string[]
  add_labels?: readonly string[]
  remove_labels?: readonly string[]
  notes?: string
  archived?: boolean
  baseline?: boolean
  deleted?: boolean
}

/** What makes a run's annotations again what they were before an edit: of labels only those that it added or removed. */
export function undoOf(edit: Edit, { labels, deleted, ...before }: Annotations): Edit {
  const undo: Edit = {}
  for (const key of ['name', 'notes', 'archived', 'baseline'] as const) if (edit[key] !== undefined) Object.assign(undo, { [key]: before[key] })
  if (edit.deleted !== undefined) undo.deleted = deleted > 0
  if (edit.labels) undo.labels = labels
  if (edit.add_labels) undo.remove_labels = edit.add_labels.filter((label) => !labels.includes(label))
  if (edit.remove_labels) undo.add_labels = edit.remove_labels.filter((label) => labels.includes(label))
  return undo
}
