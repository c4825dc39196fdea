// Commands to a live run: controls, actions, pause, resume, stop; the queries that it answers; and the history of commands.

import { signal } from '@preact/signals'
import { useState } from 'preact/hooks'
import { useDetail } from '../../data/details'
import { runs } from '../../data/runs'
import { session } from '../../data/session'
import type { Description, Run, RunDetail } from '../../data/types'
import { Icon } from '../../ui/Icon'
import { Dialog, Empty } from '../../ui/parts'
import { dateTime, number } from '../../views/format'
import { askedRun, RunSelect } from '../ask/AskPage'
import { Action } from './Action'
import { forget, idOf, pending, send } from './sending'
import { stillPending, type Command } from './commands'
import { Control } from './Control'
import { History } from './History'
import { Queries } from './Queries'

const stopping = signal<Run | null>(null)
const READ_ONLY = 'You opened the read-only link. To send commands, open the controller link'

export function CommandsPage() {
  const run = askedRun.value
  const { detail, problem } = useDetail(run?.key ?? '')
  if (runs.value === null) return <p class="chart-empty">Looking for runs …</p>
  if (!run) {
    return (
      <Empty title="There is no run yet">
        <p>The controls of a live training appear here:</p>
        <pre>{'lr = run.control("lr", 1e-3, min=0, max=1)\nrun.action("checkpoint", save_checkpoint)'}</pre>
      </Empty>
    )
  }
  const viewer = session.value?.role === 'viewer'
  return (
    <section class="commands" aria-label="Commands">
      <div class="commands-head">
        <RunSelect />
        {run.live && <RunButtons run={run} off={viewer} />}
      </div>
      {viewer && (
        <p class="banner banner-still" id="commands-off">
          {READ_ONLY}.
        </p>
      )}
      {problem && <p class="banner">{problem}</p>}
      {!run.live && <p class="banner banner-still">{endOf(run)}</p>}
      <div class="commands-columns">
        {run.live && (
          <div class="commands-column">
            <Offered run={run} detail={detail} off={viewer} />
          </div>
        )}
        <div class="commands-column">
          {run.live && <Queries run={run} streams={detail?.streams ?? []} age_s={detail?.description ? detail.description.wall_time - detail.description.started : 0} />}
          <div class="card">
            <h2>History</h2>
            <History entries={detail?.history ?? []} />
          </div>
        </div>
      </div>
      {stopping.value && <Stop run={stopping.value} />}
    </section>
  )
}

function endOf({ state, ended, last_step, problem }: Run): string {
  const how = { failed: 'This run failed', died: 'This run died' }[state as string] ?? 'This run is over'
  const when = [ended !== null && `ended ${dateTime(ended)}`, last_step !== null && `at step ${number(last_step, 12)}`].filter(Boolean).join(' ')
  return `${how}${when && ` (${when})`}: it no longer accepts commands.${problem ? ` ${problem}` : ''}`
}

function RunButtons({ run, off }: { run: Run; off: boolean }) {
  const title = off ? READ_ONLY : undefined
  const over = off || run.state === 'stopping'
  const waits = (['pause', 'resume', 'stop'] as const).map((kind) => pending.value.get(idOf(run.key, { kind }))).find((one) => one && !one.problem)
  return (
    <span class="reins">
      {waits?.note && <span class="muted">{waits.note}</span>}
      {run.state === 'paused' ? (
        <button type="button" class="button" disabled={off} title={title} onClick={() => void send(run, { kind: 'resume' })}>
          <Icon name="play" size={14} /> Resume
        </button>
      ) : (
        <button type="button" class="button" disabled={over} title={title} onClick={() => void send(run, { kind: 'pause' })}>
          <Icon name="pause" size={14} /> Pause
        </button>
      )}
      <button type="button" class="button button-bad" disabled={over} title={title} onClick={() => (stopping.value = run)}>
        <Icon name="stop" size={14} /> {run.state === 'stopping' ? 'Stopping' : 'Stop …'}
      </button>
    </span>
  )
}

function Stop({ run }: { run: Run }) {
  const close = () => (stopping.value = null)
  return (
    <Dialog label={`Stop ${run.name}`} onClose={close}>
      <h2>Stop {run.name}?</h2>
      <p>The training is asked to stop at its next event. A stopped run cannot be resumed.</p>
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={close}>
          Keep it running
        </button>
        <button type="button" class="button button-danger" onClick={() => (close(), void send(run, { kind: 'stop' }))}>
          Stop it
        </button>
      </div>
    </Dialog>
  )
}

function Offered({ run, detail, off }: { run: Run; detail: RunDetail | null; off: boolean }) {
  const [at, setAt] = useState('')
  const offered: Description | null = detail?.description ?? null
  if (!offered) return <p class="muted">Loading the controls …</p>
  const events = Object.keys(offered.events)
  const when = at && events.includes(at) ? { at } : {}
  const waits = (command: Command) => stillPending(pending.value.get(idOf(run.key, command)), detail?.history ?? [])
  return (
    <>
      <div class="card">
        <div class="card-head">
          <h2>Controls</h2>
          <label class="commands-when">
            applied at
            <select value={at} disabled={off} onChange={({ currentTarget }) => setAt(currentTarget.value)}>
              <option value="">the next event</option>
              {events.map((event) => (
                <option key={event} value={event}>
                  the next {event}
                </option>
              ))}
            </select>
          </label>
        </div>
        {Object.keys(offered.controls).length === 0 && (
          <p class="muted">
            This run has no controls. Add one in the training: <code>lr = run.control("lr", 1e-3, min=0, max=1)</code>, then read <code>lr.value</code>.
          </p>
        )}
        {Object.entries(offered.controls).map(([name, control]) => (
          <Control
            key={name}
            name={name}
            control={control}
            off={off ? READ_ONLY : ''}
            pending={waits({ kind: 'set', name })}
            onSet={(value) => void send(run, { kind: 'set', name, value, ...when })}
            onForget={() => forget(run.key, { kind: 'set', name })}
          />
        ))}
      </div>
      <div class="card">
        <h2>Actions</h2>
        {Object.keys(offered.actions).length === 0 && (
          <p class="muted">
            This run has no actions. Add one in the training: <code>run.action("checkpoint", save_checkpoint)</code>
          </p>
        )}
        {Object.entries(offered.actions).map(([name, { doc, where }]) => (
          <Action key={name} name={name} doc={doc} where={where} off={off ? READ_ONLY : ''} pending={waits({ kind: 'call', name })} onCall={() => void send(run, { kind: 'call', name, ...when })} />
        ))}
      </div>
    </>
  )
}
