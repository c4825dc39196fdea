// What can be done with the selected runs: label them, put them away, and back.

import { annotate } from '../../data/annotate'
import type { Edit } from '../../data/edits'
import { showOnly } from '../../data/runs'
import { select, selectAll, selected } from '../../data/selection'
import { session } from '../../data/session'
import { IconButton } from '../../ui/parts'
import { LabelBox, Labels } from './Labels'

const nRuns = (n: number): string => `${n} ${n === 1 ? 'run' : 'runs'}`

export function SelectionBar() {
  const chosen = selected.value
  if (chosen.length === 0) return null
  const keys = chosen.map((run) => run.key)
  const act = (edit: Edit, done: string) => void annotate(keys, edit, `${done}: ${nRuns(keys.length)}`)
  const all = (test: (one: (typeof chosen)[number]['annotations']) => boolean) => chosen.every((run) => test(run.annotations))
  const [archived, baseline, deleted] = [all((one) => one.archived), all((one) => one.baseline), all((one) => one.deleted > 0)]
  const labels = [...new Set(chosen.flatMap((run) => run.annotations.labels))].sort()
  return (
    <div class="selection" role="toolbar" aria-label="Selected runs">
      <b>{nRuns(chosen.length)} selected</b>
      <button type="button" class="button" onClick={() => showOnly(keys)}>
        Show only these
      </button>
      {session.value?.role === 'controller' && (
        <>
          <LabelBox onLabel={(label) => act({ add_labels: [label] }, `Labelled ${label}`)} />
          <Labels of={{ labels, baseline: false }} onRemove={(label) => act({ remove_labels: [label] }, `No longer ${label}`)} />
          {chosen.length === 1 && (
            <button type="button" class="button" aria-pressed={baseline} onClick={() => act({ baseline: !baseline }, baseline ? 'No baseline any more' : 'Baseline')}>
              {baseline ? 'No baseline' : 'Baseline'}
            </button>
          )}
          <button type="button" class="button" onClick={() => act({ archived: !archived }, archived ? 'Out of the archive' : 'Archived')}>
            {archived ? 'Unarchive' : 'Archive'}
          </button>
          <button type="button" class="button button-bad" onClick={() => act({ deleted: !deleted }, deleted ? 'Restored' : 'In the trash; files stay as they are')}>
            {deleted ? 'Restore' : 'Delete'}
          </button>
        </>
      )}
      <IconButton icon="close" label="Select none" onClick={() => selectAll(false)} />
    </div>
  )
}

/** The box that selects a run. */
export function SelectBox({ run, label, on }: { run: string; label: string; on: boolean }) {
  return <input type="checkbox" class="select-box" aria-label={`Select ${label}`} title="Select; with Shift, all in between" checked={on} onClick={({ currentTarget, shiftKey }) => select(run, currentTarget.checked, shiftKey)} />
}
