// Commands to a live run: controls, actions, pause, resume, stop; the queries that it answers; and the history of commands.

import { useDetail } from '../../data/details'
import { runs } from '../../data/runs'
import { session } from '../../data/session'
import type { Run } from '../../data/types'
import { History } from '../../run/History'
import { Offered } from '../../run/Offered'
import { Queries } from '../../run/Queries'
import { RunButtons } from '../../run/RunButtons'
import { Empty } from '../../ui/parts'
import { dateTime, number } from '../../views/format'
import { askedRun, askIn, RunSelect } from '../ask/AskPage'
import { commanderOf } from './sending'

const HUB_VIEWER = "This page reaches the run with a viewer's hub file. To send commands, start it with a controller's"
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
  const off = session.value?.role === 'viewer' ? READ_ONLY : run.hub_role === 'viewer' ? HUB_VIEWER : ''
  const commander = commanderOf(run.key)
  const description = detail?.description ?? null
  return (
    <section class="commands" aria-label="Commands">
      <div class="commands-head">
        <RunSelect />
        {run.live && <RunButtons key={run.key} name={run.name} state={run.state} off={off} commander={commander} />}
      </div>
      {off && (
        <p class="banner banner-still" id="commands-off">
          {off}.
        </p>
      )}
      {problem && <p class="banner">{problem}</p>}
      {!run.live && <p class="banner banner-still">{endOf(run)}</p>}
      <div class="commands-columns">
        {run.live && (
          <div class="commands-column">
            {description ? <Offered key={run.key} description={description} off={off} commander={commander} /> : <p class="muted">Loading the controls …</p>}
          </div>
        )}
        <div class="commands-column">
          {run.live && <Queries streams={detail?.streams ?? []} age_s={description ? description.wall_time - description.started : 0} onOpen={(query) => askIn(run.key, query)} />}
          <div class="card">
            <h2>History</h2>
            <History entries={detail?.history ?? []} />
          </div>
        </div>
      </div>
    </section>
  )
}

function endOf({ state, ended, last_step, problem }: Run): string {
  const how = { failed: 'This run failed', terminated: 'This run was terminated', died: 'This run died' }[state as string] ?? 'This run is over'
  const when = [ended !== null && `ended ${dateTime(ended)}`, last_step !== null && `at step ${number(last_step, 12)}`].filter(Boolean).join(' ')
  return `${how}${when && ` (${when})`}: it no longer accepts commands.${problem ? ` ${problem}` : ''}`
}
