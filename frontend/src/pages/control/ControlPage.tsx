// Commands to a live run: controls, actions, pause, resume, stop; the queries that it answers; and the history of commands.

import { useRef } from 'preact/hooks'
import { sentenceOf, useDetail } from '../../data/details'
import { byKey, runs } from '../../data/runs'
import { session } from '../../data/session'
import { at, update } from '../../state/state'
import type { Run } from '../../data/types'
import { History } from '../../run/History'
import { Offered } from '../../run/Offered'
import { Queries } from '../../run/Queries'
import { RunButtons } from '../../run/RunButtons'
import { silence, StacksButton } from '../../run/Stacks'
import { StateDot } from '../../run/StateDot'
import { Empty } from '../../ui/parts'
import { Name } from '../runs/Name'
import { ask, askedRun } from '../ask/asked'
import { Effect } from './Effect'
import { commanderOf, NO_COMMANDS } from './sending'

const HUB_VIEWER = "This page reaches the run with a viewer's hub file. To send commands, start it with a controller's"

export function ControlPage() {
  const last = useRef<Run | null>(null)
  // A run that recorded nothing leaves the list with its end: another must not take its place meanwhile.
  const left = last.current && !byKey.value.has(last.current.key) && ['', last.current.key].includes(at.asked.value) ? last.current : null
  const run = left ? { ...left, live: false } : askedRun.value
  last.current = left ?? run
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
  const off = session.value?.role === 'viewer' ? NO_COMMANDS : run.hub_role === 'viewer' && run.live ? HUB_VIEWER : ''
  const commander = commanderOf(run.key)
  const description = detail?.description ?? null
  const offered = description ? [...Object.keys(description.controls), ...Object.keys(description.actions)] : []
  const knob = offered.includes(at.knob.value) ? at.knob.value : offered[0]
  return (
    <section class="commands" aria-label="Control">
      <div class="commands-head">
        <h2 class="commands-run">
          <StateDot state={left ? 'ended' : run.state} why={run.why} />
          <button type="button" class="text-button" title="The page of this run" onClick={() => update({ run: run.key }, { page: 'run' })}>
            <Name run={run} />
          </button>
          <span class="muted">{left ? 'ended' : sentenceOf(run, detail)}</span>
        </h2>
        {run.live && (
          <span class="reins" key={run.key}>
            <StacksButton run={run.key} name={run.name} off={off} />
            <RunButtons name={run.name} state={run.state} off={off} commander={commander} />
          </span>
        )}
      </div>
      {off && (
        <p class="banner banner-still" id="commands-off">
          {off}.
        </p>
      )}
      {run.live && description?.state === 'quiet' && <p class="banner">{silence(description)}</p>}
      {problem && !left && <p class="banner">{problem}</p>}
      {!run.live && <p class="banner banner-still">{left ? LEFT : endOf(run)}</p>}
      <div class="commands-columns">
        {run.live && (
          <div class="commands-column">
            {description ? <Offered key={run.key} description={description} off={off} commander={commander} chosen={knob} onChoose={(name) => update({ knob: name })} /> : <p class="muted">Loading the controls …</p>}
          </div>
        )}
        <div class="commands-column">
          {run.live && description && knob && <Effect run={run} name={knob} description={description} history={detail?.history ?? []} />}
          {run.live && <Queries streams={detail?.streams ?? []} age_s={description ? description.wall_time - description.started : 0} onOpen={(query) => ask(run.key, query)} />}
          <div class="card">
            <h2>History</h2>
            <History entries={detail?.history ?? []} />
          </div>
        </div>
      </div>
    </section>
  )
}

const LEFT = 'This run stopped and recorded nothing: it no longer accepts commands, and leaves the list when you choose another.'

function endOf({ state, problem }: Run): string {
  if (state === 'running') return 'This run is running, and out of reach of this server: on another machine, or with another SIGHTGLASS_RUNTIME_DIR. Its files are read, but it accepts no commands from here.'
  return `This run is over: it no longer accepts commands.${problem ? ` ${problem}` : ''}`
}
