// The face of a run: how it is, in one sentence; what looks wrong; what was asked of it; what it is.

import { useEffect, useState } from 'preact/hooks'
import { get, messageOf, runPath } from '../../data/api'
import { sentenceOf, useDetail } from '../../data/details'
import { byKey, labelOf, runs, showOnly } from '../../data/runs'
import { session } from '../../data/session'
import type { Description, Finding, Run, RunTexts } from '../../data/types'
import { History } from '../../run/History'
import { Queries } from '../../run/Queries'
import { StacksButton } from '../../run/Stacks'
import { StateDot } from '../../run/StateDot'
import { at, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { Empty } from '../../ui/parts'
import { focusHotkey } from '../../ui/shortcuts'
import { value } from '../../views/format'
import { AskPanel } from '../ask/AskPanel'
import { ask, askedRun, change, choose, panels } from '../ask/asked'
import { NO_COMMANDS } from '../control/sending'
import { Annotated } from '../runs/Annotated'
import { Config, factsOf } from '../runs/Details'
import { Name } from '../runs/Name'
import { Facts, NO_CODE, Program } from '../runs/Program'
import { Machine } from './Machine'

const N_LINES = 50

export function RunPage() {
  const run = at.run.value ? byKey.value.get(at.run.value) : askedRun.value
  const { detail, problem } = useDetail(run?.key ?? '')
  if (runs.value === null) return <p class="chart-empty">Looking for runs …</p>
  if (!run) {
    return (
      <Empty title="This run is not here" mark={false}>
        <p>Its directory is gone, or it is in another folder than those that this server shows.</p>
      </Empty>
    )
  }
  const description = detail?.description ?? null
  const viewing = session.value?.role === 'viewer'
  const over = ['failed', 'terminated', 'died'].includes(run.state)
  const kept = panels.value.flatMap((panel, i) => (panel.pinned && panel.streams.some((one) => one.run === run.key) ? [{ panel, i }] : []))
  return (
    <section class="run-page" aria-label={`Run ${labelOf(run.key)}`}>
      <header class="run-face">
        <h2>
          <Name run={run} />
        </h2>
        <p class={`run-sentence state-${run.state}`} role="status">
          <StateDot state={run.state} /> {sentenceOf(run, detail)}
        </p>
        <span class="reins">
          <button type="button" class="button" onClick={() => (choose(run.key), focusHotkey('q'))}>
            Ask
          </button>
          <button type="button" class="button" onClick={() => (showOnly([run.key]), update({}, { page: 'charts' }))}>
            Charts of it
          </button>
          {run.live && (
            <>
              <StacksButton run={run.key} name={run.name} off={viewing ? NO_COMMANDS : ''} />
              <button type="button" class="button" onClick={() => update({ asked: run.key }, { page: 'control' })}>
                Control
              </button>
            </>
          )}
        </span>
      </header>
      <Wrong run={run} findings={detail?.findings ?? []} problem={problem} />
      <div class="run-columns">
        <div class="commands-column">
          {description && description.ending.frames.length > 0 && <Frames ending={description.ending} />}
          {over && <Printed run={run} off={viewing ? NO_CODE : ''} />}
          {kept.map(({ panel, i }) => (
            <AskPanel key={panel.streams[0]!.query} panel={panel} onChange={(next) => change(i, next)} />
          ))}
          {description && <Knobs description={description} />}
          {run.live && <Queries streams={detail?.streams ?? []} age_s={description ? description.wall_time - description.started : 0} onOpen={(query) => ask(run.key, query)} />}
          <div class="card">
            <h2>Commands and alerts</h2>
            <History entries={detail?.history ?? []} />
          </div>
        </div>
        <div class="commands-column">
          <div class="card">
            <h2>Facts</h2>
            <Facts facts={factsOf(run, detail?.not_shown ?? {})} />
            <Program run={run} facts={description?.facts ?? {}} />
          </div>
          <div class="card">
            <h2>Machine</h2>
            <Machine run={run} />
          </div>
          <div class="card">
            <h2>Config</h2>
            <Config run={run} />
          </div>
          <div class="card">
            <h2>Notes</h2>
            <Annotated key={run.key} run={run} />
          </div>
        </div>
      </div>
    </section>
  )
}

/** What looks wrong; why it ended is said above. */
function Wrong({ run, findings, problem }: { run: Run; findings: readonly Finding[]; problem: string | null }) {
  const shown = findings.filter(({ kind }) => kind !== 'ended')
  const problems = [run.problem, problem ?? ''].filter(Boolean)
  if (shown.length + problems.length === 0) return null
  return (
    <ul class="run-wrong" aria-label="What looks wrong">
      {problems.map((text) => (
        <li key={text} class="banner">
          <Icon name="warning" /> <span>{text}</span>
        </li>
      ))}
      {shown.map(({ kind, level, text, query, wall_time }) => (
        <li key={kind} class={`banner${level === 'warning' ? ' banner-mild' : ''}`}>
          <Icon name="warning" /> <span>{text}</span>
          {query && wall_time && (
            <button type="button" class="text-button" onClick={() => update({ moment: `${wall_time} ${run.key}` }, { page: 'charts' })}>
              Show that moment
            </button>
          )}
        </li>
      ))}
    </ul>
  )
}

/** The last calls before the exception that ended the run. */
function Frames({ ending: { error, frames } }: { ending: Description['ending'] }) {
  const lines = frames.map(({ file, line, function: name }) => `  File "${file}", line ${line}, in ${name}`)
  return (
    <div class="card">
      <h2>Why it ended</h2>
      <pre class="stacks">{[...lines, error].join('\n')}</pre>
    </div>
  )
}

/** The last lines that the program printed. */
function Printed({ run, off }: { run: Run; off: string }) {
  const [said, setSaid] = useState<string | null>(null)
  useEffect(() => {
    if (off) return setSaid(`${off}.`)
    get<RunTexts>(runPath(run.key, '/beside')).then(
      ({ printed }) => setSaid(printed.trimEnd().split('\n').slice(-N_LINES).join('\n')),
      (error: unknown) => setSaid(messageOf(error)),
    )
  }, [run.key, off])
  return (
    <div class="card">
      <h2>What it printed last</h2>
      {said === null ? <p class="muted">Loading …</p> : said ? <pre class="stacks">{said}</pre> : <p class="muted">No lines were written.</p>}
    </div>
  )
}

/** The values of its controls; they are changed under Control. */
function Knobs({ description: { controls } }: { description: Description }) {
  const all = Object.entries(controls)
  if (all.length === 0) return null
  return (
    <div class="card">
      <h2>Controls</h2>
      <Facts facts={all.map(([name, control]) => [name, value(control.value)])} />
    </div>
  )
}
