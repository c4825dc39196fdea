// One run in full: its facts, config, queries and their costs, and history.

import { flatten } from '../../data/filter'
import { sentenceOf, useDetail } from '../../data/details'
import { durationOf } from '../../data/filter'
import { styleOfRun } from '../../data/looks'
import { byKey, labelOf, showOnly } from '../../data/runs'
import type { HistoryEntry, Run } from '../../data/types'
import { at, toggled, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { focusHotkey } from '../../ui/shortcuts'
import { IconButton } from '../../ui/parts'
import { dateTime, duration, value } from '../../views/format'
import { choose } from '../ask/asked'
import { commandText } from '../charts/history'
import { Annotated } from './Annotated'
import { Colors } from './Colors'
import { Name } from './Name'
import { Facts, Program, TextButton } from './Program'
import { StateDot } from '../../run/StateDot'
import { Streams } from './Streams'

export function Details() {
  const run = byKey.value.get(at.run.value)
  const { detail, problem } = useDetail(run?.key ?? '')
  if (!run) return null
  const pinned = at.pin.value.includes(run.key)
  return (
    <aside class="details" aria-label={`Run ${labelOf(run.key)}`}>
      <header class="details-head">
        <h2 title={labelOf(run.key)}>
          <Name run={run} />
        </h2>
        <IconButton icon="expand" label="The page of this run" onClick={() => update({}, { page: 'run' })} />
        <IconButton icon="close" label="Close" onClick={() => update({ run: '' })} />
      </header>
      <div class="details-body">
        <p class="details-state">
          <StateDot state={run.state} why={run.why} word /> <span class="muted">{run.id}</span>
        </p>
        <p class={run.state === 'failed' ? 'field-problem' : 'muted'}>{sentenceOf(run, detail)}</p>
        {['failed', 'terminated'].includes(run.state) && (
          <TextButton run={run} what="printed">
            What it printed last
          </TextButton>
        )}
        {[run.problem, problem].map(
          (text) =>
            text && (
              <p key={text} class="banner" role="alert">
                <Icon name="warning" /> {text}
              </p>
            ),
        )}
        <div class="details-buttons">
          <button type="button" class="button" onClick={() => showOnly([run.key])}>
            Show only this
          </button>
          <button type="button" class="button" aria-pressed={pinned} onClick={() => update({ pin: toggled(at.pin.peek(), run.key) })}>
            {pinned ? 'Unpin' : 'Pin'}
          </button>
          {run.live && (
            <button type="button" class="button" onClick={() => (choose(run.key), focusHotkey('q'))}>
              Ask
            </button>
          )}
        </div>
        {!at.colorby.value && <Colors name={run.key} label={labelOf(run.key)} color={styleOfRun(run.key).color} />}
        <Facts facts={factsOf(run, detail?.not_shown ?? {})} />
        <Annotated key={run.key} run={run} />
        <h3>Config</h3>
        <Config run={run} />
        <Program run={run} facts={detail?.description?.facts ?? {}} />
        {run.live && (
          <>
            <h3>Queries</h3>
            <Streams share={detail?.share ?? null} streams={detail?.streams ?? []} />
          </>
        )}
        <h3>Commands</h3>
        <History entries={detail?.history ?? []} />
      </div>
    </aside>
  )
}

export function factsOf(run: Run, notShown: Record<string, number>): [string, preact.ComponentChildren][] {
  const length = durationOf(run, Date.now() / 1000)
  const facts: [string, preact.ComponentChildren][] = [
    ['Started', run.started === null ? null : dateTime(run.started)],
    ['Duration', length === null ? null : duration(Math.round(length))],
    ['Last step', run.last_step === null ? null : run.last_step.toLocaleString('en')],
    ['Source', run.source],
    ['Project', run.project],
    ['Host', run.host],
    ['Own name', run.own_name === run.name ? null : run.own_name],
    ['Not shown', Object.entries(notShown).map(([what, n]) => (n === 1 ? what : `${what} (${n.toLocaleString('en')})`)).join(', ')],
    ['Directory', run.directory && <code class="path">{run.directory}</code>],
  ]
  return facts.filter(([, fact]) => fact)
}

export function Config({ run }: { run: Run }) {
  const entries = Object.entries(flatten(run.config))
  if (entries.length === 0) return <p class="muted">This run was started without a config.</p>
  return (
    <dl class="facts facts-config">
      {entries.map(([key, one]) => (
        <div key={key}>
          <dt title={key}>{key}</dt>
          <dd>
            <button type="button" class="text-button" title={`Show runs with ${key}=${value(one)}`} onClick={() => update({ filter: `${/^[\w./-]+$/.test(key) ? key : `"${key}"`}=${filterText(one)}` })}>
              {value(one)}
            </button>
          </dd>
        </div>
      ))}
    </dl>
  )
}

const filterText = (one: unknown): string => {
  const text = typeof one === 'object' ? JSON.stringify(one) : String(one)
  return /[\s()[\]']/.test(text) ? `"${text}"` : text
}

export function History({ entries }: { entries: HistoryEntry[] }) {
  if (entries.length === 0) return <p class="muted">No commands yet.</p>
  return (
    <ol class="history">
      {[...entries].reverse().map((entry, i) => (
        <li key={i}>
          <span>{commandText(entry)}</span>
          <span class="muted">
            {typeof entry.step === 'number' && `step ${entry.step.toLocaleString('en')} · `}
            {typeof entry.wall_time === 'number' && dateTime(entry.wall_time)}
          </span>
        </li>
      ))}
    </ol>
  )
}
