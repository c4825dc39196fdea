// Act on a live run: its controls, its actions, pause, resume, stop; and what was done so far.

import { signal } from '@preact/signals'
import { useState } from 'preact/hooks'
import { post, runPath } from '../../data/api'
import { loadDetail, useDetail } from '../../data/details'
import { session } from '../../data/session'
import type { Description, Run, RunDetail } from '../../data/types'
import { Icon } from '../../ui/Icon'
import { Dialog, Empty } from '../../ui/parts'
import { tell, tellError } from '../../ui/toasts'
import { value as shown } from '../../views/format'
import { askedRun, RunSelect } from '../ask/AskPage'
import { History } from '../runs/Details'
import { Control } from './Control'

interface Acknowledged {
  applied: boolean
  step: number
  result?: unknown
  note?: string
}

interface Wanted {
  kind: 'set' | 'call' | 'pause' | 'resume' | 'stop'
  name?: string
  value?: unknown
}

const DONE = { set: 'Set', call: 'Called', pause: 'Paused', resume: 'Resumed', stop: 'Stopping' }
const stopping = signal<Run | null>(null)

async function act(run: Run, wanted: Wanted): Promise<void> {
  try {
    const done = await post<Acknowledged>(runPath(run.key, '/acts'), wanted)
    const what = [DONE[wanted.kind], wanted.name, wanted.kind === 'set' && `to ${shown(wanted.value)}`].filter(Boolean).join(' ')
    const result = done.result === null || done.result === undefined ? '' : `: ${shown(done.result)}`
    tell('done', done.applied ? `${what} at step ${done.step}${result}` : `${what}: waiting. ${done.note ?? ''}`)
  } catch (error) {
    tellError(error)
  }
  await loadDetail(run.key)
}

export function ActPage() {
  const run = askedRun.value
  const { detail, problem } = useDetail(run?.key ?? '')
  if (!run) {
    return (
      <Empty title="There is no run to act on">
        <p>
          A live training offers its controls here: <code>lr = run.control("lr", 1e-3, min=0, max=1)</code>
        </p>
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
      {viewer && <p class="banner banner-still">You opened the viewer's link: you see the controls, and whoever has the controller's link can change them.</p>}
      {problem && <p class="banner">{problem}</p>}
      {run.live ? <Offer run={run} detail={detail} off={viewer} /> : <p class="muted">This run is over: it takes no acts any more.</p>}
      <div class="card">
        <h2>What was done to it</h2>
        <History acts={detail?.history ?? []} />
      </div>
      {stopping.value && <Stop run={stopping.value} />}
    </section>
  )
}

function Reins({ run, off }: { run: Run; off: boolean }) {
  return (
    <span class="reins">
      {run.state === 'paused' ? (
        <button type="button" class="button" disabled={off} onClick={() => void act(run, { kind: 'resume' })}>
          <Icon name="play" size={14} /> Resume
        </button>
      ) : (
        <button type="button" class="button" disabled={off || run.state === 'stopping'} onClick={() => void act(run, { kind: 'pause' })}>
          <Icon name="pause" size={14} /> Pause
        </button>
      )}
      <button type="button" class="button button-bad" disabled={off || run.state === 'stopping'} onClick={() => (stopping.value = run)}>
        <Icon name="stop" size={14} /> Stop …
      </button>
    </span>
  )
}

function Stop({ run }: { run: Run }) {
  const close = () => (stopping.value = null)
  return (
    <Dialog label={`Stop ${run.name}`} onClose={close}>
      <h2>Stop {run.name}?</h2>
      <p>The training ends at its next step, in its own way. A stopped run cannot be resumed.</p>
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
  const offered: Description | null = detail?.description ?? null
  if (!offered) return <p class="muted">Asking the run what it offers …</p>
  const controls = Object.entries(offered.controls)
  const actions = Object.entries(offered.actions)
  return (
    <>
      <div class="card">
        <h2>Controls</h2>
        {controls.length === 0 && (
          <p class="muted">
            This run has none. In the training: <code>lr = run.control("lr", 1e-3, min=0, max=1)</code>, and read <code>lr.value</code>.
          </p>
        )}
        {controls.map(([name, control]) => (
          <Control key={name} name={name} control={control} disabled={off} onSet={(value) => act(run, { kind: 'set', name, value })} />
        ))}
      </div>
      <div class="card">
        <h2>Actions</h2>
        {actions.length === 0 && (
          <p class="muted">
            This run has none. In the training: <code>run.action("checkpoint", save_checkpoint)</code>
          </p>
        )}
        {actions.map(([name, { doc, where }]) => (
          <Action key={name} name={name} doc={doc} where={where} off={off} onCall={() => act(run, { kind: 'call', name })} />
        ))}
      </div>
    </>
  )
}

function Action({ name, doc, where, off, onCall }: { name: string; doc: string; where: string; off: boolean; onCall: () => Promise<void> }) {
  const [busy, setBusy] = useState(false)
  const call = async () => {
    setBusy(true)
    await onCall()
    setBusy(false)
  }
  return (
    <div class="control" title={`Declared at ${where}`}>
      <span class="control-name">
        {name} <span class="muted">{doc}</span>
      </span>
      <button type="button" class="button" disabled={off || busy} onClick={() => void call()}>
        {busy ? 'Waiting for the next event …' : `Call ${name}`}
      </button>
    </div>
  )
}
