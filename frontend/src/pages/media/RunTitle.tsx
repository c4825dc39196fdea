import type { ComponentChildren } from 'preact'
import { styleOfRun } from '../../data/looks'
import type { Run } from '../../data/types'
import { Name } from '../runs/Name'
import { Ring } from '../../run/StateDot'

/** A run's name in its colour, with notes and tools. */
export function RunTitle({ run, note, children }: { run: Run; note: string; children?: ComponentChildren }) {
  return (
    <header class="media-title">
      <Ring style={styleOfRun(run.key)} on />
      <h3 title={run.directory}>
        <Name run={run} />
      </h3>
      <span class="panel-notes">{note}</span>
      {children && <span class="panel-tools">{children}</span>}
    </header>
  )
}
