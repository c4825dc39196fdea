// Act on a live run: its controls, its actions, pause, resume, stop; who asks it what; and what was done so far.

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
import { act, forget, idOf, underway } from './acting'
import { stillUnderway, type Wanted } from './acts'
import { Control } from './Control'
import { History } from './History'
import { Asked } from './Asked'

const stopping = signal<Run | null>(null)
const VIEWERS_LOOK = 'You opened the link for viewers: whoever has the link for controllers can act'

export function ActPage() {
  const run = askedRun.value
  const { detail, problem } = useDetail(run?.key ?? '')
  if (runs.value === null) return <p class="chart-empty">Looking for runs …</p>
  if (!run) {
    return (
      <Empty title="There is no run to act on">
        <p>A live training offers its controls here:</p>
        <pre>{'lr = run.control("lr", 1e-3, min=0, max=1)\nrun.action("checkpoint", save_checkpoint)'}</pre>
      </Empty>
    )
  }
  const viewer = session.value?.role === 'viewer'
  return (
    <section class="act" aria-label="Act">
      <div class="act-head">
        <RunSelect />
        {run.live && <Reins run={run} off={viewer} />}
      </div>
      {viewer && (
        <p class="banner banner-still" id="act-off">
          {VIEWERS_LOOK}.
        </p>
      )}
      {problem && <p class="banner">{problem}</p>}
      {!run.live && <p class="banner banner-still">{overOf(run)}</p>}
      <div class="act-columns">
        {run.live && (
          <div class="act-column">
            <Offer run={run} detail={detail} off={viewer} />
          </div>
        )}
        <div class="act-column">
          {run.live && <Asked run={run} streams={detail?.streams ?? []} age_s={detail?.description ? detail.description.wall_time - detail.description.started : 0} />}
          <div class="card">
            <h2>What was done to it</h2>
            <History acts={detail?.history ?? []} />
          </div>
        </div>
      </div>
      {stopping.value && <Stop run={stopping.value} />}
    </section>
  )
}

function overOf({ state, ended, last_step, problem }: Run): string {
  const how = { failed: 'This run failed', died: 'This run died' }[state as string] ?? 'This run is over'
  const when = [ended !== null && `ended ${dateTime(ended)}`, last_step !== null && `at step ${number(last_step, 12)}`].filter(Boolean).join(' ')
  return `${how}${when && ` (${when})`}: it takes no acts any more.${problem ? ` ${problem}` : ''}`
}

function Reins({ run, off }: { run: Run; off: boolean }) {
  const title = off ? VIEWERS_LOOK : undefined
  const over = off || run.state === 'stopping'
  const waits = (['pause', 'resume', 'stop'] as const).map((kind) => underway.value.get(idOf(run.key, { kind }))).find((one) => one && !one.problem)
  return (
    <span class="reins">
      {waits?.note && <span class="muted">{waits.note}</span>}
      {run.state === 'paused' ? (
        <button type="button" class="button" disabled={off} title={title} onClick={() => void act(run, { kind: 'resume' })}>
          <Icon name="play" size={14} /> Resume
        </button>
      ) : (
        <button type="button" class="button" disabled={over} title={title} onClick={() => void act(run, { kind: 'pause' })}>
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
      <p>The training ends at its next event, in its own way. A stopped run cannot be resumed.</p>
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={close}>
          Keep it running
        </button>
        <button type="button" class="button button-danger" onClick={() => (close(), void act(run, { kind: 'stop' }))}>
          Stop it
        </button>
      </div>
    </Dialog>
  )
}

function Offer({ run, detail, off }: { run: Run; detail: RunDetail | null; off: boolean }) {
  const [at, setAt] = useState('')
  const offered: Description | null = detail?.description ?? null
  if (!offered) return <p class="muted">Asking the run what it offers …</p>
  const events = Object.keys(offered.events)
  const when = at && events.includes(at) ? { at } : {}
  const waits = (wanted: Wanted) => stillUnderway(underway.value.get(idOf(run.key, wanted)), detail?.history ?? [])
  return (
    <>
      <div class="card">
        <div class="card-head">
          <h2>Controls</h2>
          <label class="act-when">
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
            This run has none. In the training: <code>lr = run.control("lr", 1e-3, min=0, max=1)</code>, and read <code>lr.value</code>.
          </p>
        )}
        {Object.entries(offered.controls).map(([name, control]) => (
          <Control
            key={name}
            name={name}
            control={control}
            off={off ? VIEWERS_LOOK : ''}
            underway={waits({ kind: 'set', name })}
            onSet={(value) => void act(run, { kind: 'set', name, value, ...when })}
            onForget={() => forget(run.key, { kind: 'set', name })}
          />
        ))}
      </div>
      <div class="card">
        <h2>Actions</h2>
        {Object.keys(offered.actions).length === 0 && (
          <p class="muted">
            This run has none. In the training: <code>run.action("checkpoint", save_checkpoint)</code>
          </p>
        )}
        {Object.entries(offered.actions).map(([name, { doc, where }]) => (
          <Action key={name} name={name} doc={doc} where={where} off={off ? VIEWERS_LOOK : ''} underway={waits({ kind: 'call', name })} onCall={() => void act(run, { kind: 'call', name, ...when })} />
        ))}
      </div>
    </>
  )
}
