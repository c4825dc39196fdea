// Where the threads of a run are: for one that is quiet, and for anybody who wonders.

import { useEffect, useState } from 'preact/hooks'
import { messageOf, postToRead, runPath } from '../data/api'
import type { Description, RunStacks } from '../data/types'
import { Dialog } from '../ui/parts'
import { dateTime, duration } from '../views/format'

/** Says for how long a run that is quiet has been. */
export function silence({ events, wall_time }: Description): string {
  const quiet = Object.entries(events ?? {}).flatMap(([name, { age_s, interval_s }]) => (typeof age_s === 'number' && typeof interval_s === 'number' ? [{ name, age_s, interval_s }] : []))
  const last = quiet.sort((a, b) => a.age_s - b.age_s)[0]
  const since = last ? `The last ${last.name} was at ${dateTime(wall_time - last.age_s)}; usually there is one every ${duration(last.interval_s)}. ` : ''
  return `${since}The run is stuck, or evaluates for long: its stacks say where it is.`
}

export function StacksButton({ run, name, off }: { run: string; name: string; off: string }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <button type="button" class="button" disabled={Boolean(off)} title={off || 'Where the threads of the program are'} onClick={() => setOpen(true)}>
        Stacks
      </button>
      {open && <StacksDialog run={run} name={name} onClose={() => setOpen(false)} />}
    </>
  )
}

function StacksDialog({ run, name, onClose }: { run: string; name: string; onClose: () => void }) {
  const [found, setFound] = useState<RunStacks | null>(null)
  const [problem, setProblem] = useState('')
  const look = () => {
    postToRead<RunStacks>(runPath(run, '/stacks'), {}).then(
      (stacks) => (setFound(stacks), setProblem('')),
      (error: unknown) => setProblem(messageOf(error)),
    )
  }
  useEffect(look, [run])
  return (
    <Dialog label={`Stacks of ${name}`} onClose={onClose}>
      <h2>Where {name} is</h2>
      {problem && <p class="field-problem">{problem}</p>}
      {found ? <pre class="stacks">{found.text}</pre> : !problem && <p class="muted">Asking the run …</p>}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={look}>
          Look again
        </button>
        <button type="button" class="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  )
}
