// Pause, resume and stop a run.

import { useState } from 'preact/hooks'
import { Icon } from '../ui/Icon'
import { Dialog } from '../ui/parts'
import type { Commander } from './commander'

interface RunButtonsProps {
  name: string
  state: string
  /** Why the run takes no commands from here; '' if it does. */
  off: string
  commander: Commander
}

export function RunButtons({ name, state, off, commander }: RunButtonsProps) {
  const [asking, setAsking] = useState(false)
  const over = Boolean(off) || state === 'stopping'
  const waits = (['pause', 'resume', 'stop'] as const).map((kind) => commander.pending({ kind })).find((one) => one && !one.problem)
  const title = off || undefined
  return (
    <span class="reins">
      {waits?.note && <span class="muted">{waits.note}</span>}
      {state === 'paused' ? (
        <button type="button" class="button" disabled={Boolean(off)} title={title} onClick={() => void commander.send({ kind: 'resume' })}>
          <Icon name="play" size={14} /> Resume
        </button>
      ) : (
        <button type="button" class="button" disabled={over} title={title} onClick={() => void commander.send({ kind: 'pause' })}>
          <Icon name="pause" size={14} /> Pause
        </button>
      )}
      <button type="button" class="button button-bad" disabled={over} title={title} onClick={() => setAsking(true)}>
        <Icon name="stop" size={14} /> {state === 'stopping' ? 'Stopping' : 'Stop …'}
      </button>
      {asking && <Stop name={name} onClose={() => setAsking(false)} onStop={() => void commander.send({ kind: 'stop' })} />}
    </span>
  )
}

function Stop({ name, onClose, onStop }: { name: string; onClose: () => void; onStop: () => void }) {
  return (
    <Dialog label={`Stop ${name}`} onClose={onClose}>
      <h2>Stop {name}?</h2>
      <p>The training is asked to stop at its next event. A stopped run cannot be resumed.</p>
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={onClose}>
          Keep it running
        </button>
        <button type="button" class="button button-danger" onClick={() => (onClose(), onStop())}>
          Stop it
        </button>
      </div>
    </Dialog>
  )
}
