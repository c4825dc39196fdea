// What a run lets controllers change and call.

import { useState } from 'preact/hooks'
import type { Description } from '../data/types'
import { Action } from './Action'
import type { Commander } from './commander'
import { Control } from './Control'

interface OfferedProps {
  description: Description
  /** Why the run takes no commands from here; '' if it does. */
  off: string
  commander: Commander
  /** The control or action that is looked at, and how another one is chosen. */
  chosen?: string
  onChoose?: (name: string) => void
}

export function Offered({ description, off, commander, chosen, onChoose }: OfferedProps) {
  const [at, setAt] = useState('')
  const events = Object.keys(description.events)
  const [controls, actions] = [Object.entries(description.controls), Object.entries(description.actions)]
  const choosing = (name: string) => onChoose && { class: chosen === name ? 'offered is-chosen' : 'offered', onFocusIn: () => onChoose(name), onClick: () => onChoose(name) }
  const when = at && events.includes(at) ? { at } : {}
  return (
    <>
      <div class="card">
        <div class="card-head">
          <h2>Controls</h2>
          {controls.length + actions.length > 0 && (
            <label class="commands-when">
              applied at
              <select value={at} disabled={Boolean(off)} onChange={({ currentTarget }) => setAt(currentTarget.value)}>
                <option value="">the next event</option>
                {events.map((event) => (
                  <option key={event} value={event}>
                    the next {event}
                  </option>
                ))}
              </select>
            </label>
          )}
        </div>
        {controls.length === 0 && (
          <p class="muted">
            This run has no controls. Add one in the training: <code>lr = run.control("lr", 1e-3, min=0, max=1)</code>, then read <code>lr.value</code>.
          </p>
        )}
        {controls.map(([name, control]) => (
          <div key={name} {...choosing(name)}>
            <Control
              name={name}
              control={control}
              off={off}
              pending={commander.pending({ kind: 'set', name })}
              onSet={(value) => void commander.send({ kind: 'set', name, value, ...when })}
              onForget={() => commander.forget({ kind: 'set', name })}
            />
          </div>
        ))}
      </div>
      <div class="card">
        <h2>Actions</h2>
        {actions.length === 0 && (
          <p class="muted">
            This run has no actions. Add one in the training: <code>run.action("checkpoint", save_checkpoint)</code>
          </p>
        )}
        {actions.map(([name, action]) => (
          <div key={name} {...choosing(name)}>
            <Action name={name} action={action} off={off} pending={commander.pending({ kind: 'call', name })} onCall={(keywords) => void commander.send({ kind: 'call', name, keywords, ...when })} />
          </div>
        ))}
      </div>
    </>
  )
}
