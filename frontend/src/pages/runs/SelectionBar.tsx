// What can be done with the selected runs: label them, put them away, and back.

import { annotate } from '../../data/annotate'
import { choose, chosen } from '../../data/columns'
import type { Edit } from '../../data/edits'
import { showOnly } from '../../data/runs'
import { select, selectAll, selected } from '../../data/selection'
import { session } from '../../data/session'
import { update } from '../../state/state'
import { IconButton } from '../../ui/parts'
import { LabelBox, Labels } from './Labels'
import { withColumn } from './tableColumns'

const nRuns = (n: number): string => `${n} ${n === 1 ? 'run' : 'runs'}`

export function SelectionBar() {
  const runs = selected.value
  if (runs.length === 0) return null
  const keys = runs.map((run) => run.key)
  const act = (edit: Edit, done: string) => void annotate(keys, edit, `${done}: ${nRuns(keys.length)}`)
  const all = (test: (one: (typeof runs)[number]['annotations']) => boolean) => runs.every((run) => test(run.annotations))
  const [archived, baseline, deleted] = [all((one) => one.archived), all((one) => one.baseline), all((one) => one.deleted > 0)]
  const addLabel = (label: string) => {
    act({ add_labels: [label] }, `Labelled ${label}`)
    // What was just written is in sight.
    if (chosen.value && !chosen.value.includes('labels')) choose(withColumn(chosen.value, 'labels'))
  }
  const labels = [...new Set(runs.flatMap((run) => run.annotations.labels))].sort()
  return (
    <div class="selection" role="toolbar" aria-label="Selected runs">
      <b>{nRuns(runs.length)} selected</b>
      <button type="button" class="button" onClick={() => showOnly(keys)}>
        Show only these
      </button>
      {runs.length > 1 && (
        <button type="button" class="button" title="Where their configurations and numbers differ" onClick={() => (showOnly(keys), update({ compare: true }))}>
          Compare
        </button>
      )}
      {session.value?.role === 'controller' && (
        <>
          <LabelBox onLabel={addLabel} />
          <Labels of={{ labels, baseline: false }} onRemove={(label) => act({ remove_labels: [label] }, `No longer ${label}`)} />
          {runs.length === 1 && (
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
