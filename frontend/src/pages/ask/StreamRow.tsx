// One stream of a panel: its colour, its latest value, what it costs the run, and why it does not come.

import { useState } from 'preact/hooks'
import { details } from '../../data/details'
import { messageOf, post, runPath } from '../../data/api'
import { byKey, socket } from '../../data/runs'
import { session } from '../../data/session'
import type { Statistics, Stream } from '../../data/stream'
import { Icon } from '../../ui/Icon'
import { IconButton } from '../../ui/parts'
import { tell } from '../../ui/toasts'
import { count, number } from '../../views/format'
import type { LineStyle } from '../../views/palette'
import type { Records } from '../../views/records'
import { sentenceOf } from '../../views/shown'
import { Swatch } from '../../views/Swatch'
import { corrected } from './corrected'
import { Meant } from './QueryBox'
import { withCaret } from './useQuery'

interface StreamRowProps {
  stream: Stream
  name: string
  style: LineStyle
  single: boolean
  /** Whether it is one of a fleet's: those are recorded run by run. */
  member: boolean
  /** Whether it is read on the axis at the right; null where there is only one. */
  second: boolean | null
  onSecond: (second: boolean) => void
  /** Null where it is the only one, or goes with its fleet. */
  onRemove: (() => void) | null
  /** Ask although it has a price. */
  onConfirm: (stream: Stream) => void
  /** Ask something else in place of it. */
  onCorrect: (query: string) => void
}

/** Whether a stream waits for the reader to accept its price. */
export const isPriced = (stream: Stream): boolean => stream.problem.value?.error === 'UnconfirmedError'

export function StreamRow({ stream, name, style, single, member, second, onSecond, onRemove, onConfirm, onCorrect }: StreamRowProps) {
  const problem = stream.problem.value
  const run = byKey.value.get(stream.run)
  const now = stream.statistics.value
  const meant = stream.records.n === 0 && corrected(stream.query, problem?.message || now?.note || now?.last_error || '')
  const latest = (stream.version.value, latestOf(stream.records))
  return (
    <li class="stream-row">
      <div class="stream-line">
        <Swatch style={style} />
        {!single && (
          <span class="stream-name" title={name}>
            {name}
          </span>
        )}
        {latest && <b>{latest}</b>}
        <Costs stream={stream} />
        <span class="stream-tools">
          {second !== null && <AxisButton second={second} onSecond={onSecond} />}
          {run?.live && !problem && !member && <Record stream={stream} />}
          {onRemove && <IconButton icon="close" label={`Remove ${name} from this panel`} onClick={onRemove} />}
        </span>
      </div>
      {problem && <Problem stream={stream} onConfirm={onConfirm} />}
      {meant && <Meant query={meant} onAsk={() => onCorrect(meant)} />}
    </li>
  )
}

export function AxisButton({ second, onSecond }: { second: boolean; onSecond: (second: boolean) => void }) {
  return (
    <button type="button" class="text-button" aria-pressed={second} title="Read this stream on the right axis" onClick={() => onSecond(!second)}>
      {second ? 'right axis' : 'left axis'}
    </button>
  )
}

/** The latest number or point, in words. */
function latestOf({ numbers: { y }, points }: Records): string {
  if (y.length) return number(y[y.length - 1]!, 5)
  const n = points.x.length - 1
  return n < 0 ? '' : `(${[points.x, points.y, points.z].map((column) => column[n]!).filter((one, i) => i < 2 || !Number.isNaN(one)).map((one) => number(one, 4)).join(', ')})`
}

function Problem({ stream, onConfirm }: { stream: Stream; onConfirm: (stream: Stream) => void }) {
  const problem = stream.problem.value!
  const priced = isPriced(stream)
  return (
    <div class={priced ? 'ask-price' : 'query-problem'} role="alert">
      <pre>{priced ? problem.message.replace(/ ?Ask again with confirm=True to go on\.?$/, '') : withCaret(stream.query, problem)}</pre>
      {priced && (
        <button type="button" class="button" onClick={() => onConfirm(stream)}>
          Ask anyway
        </button>
      )}
    </div>
  )
}

/** Whether this reader may have a stream recorded: controllers of a live run may. */
export const mayRecord = ({ run, problem }: Stream): boolean =>
  session.value?.role !== 'viewer' && byKey.value.get(run)?.live === true && byKey.value.get(run)!.hub_role !== 'viewer' && !problem.value

/** Whether the run records a stream, by its description. */
export function isRecorded({ run, opened }: Stream): boolean {
  const tag = opened.value?.tag
  return Boolean(tag && details.of(run)?.streams.some((one) => one.recorded && one.tag === tag))
}

/** Have a stream recorded, or no longer. */
export async function record({ run, query }: Stream, on: boolean): Promise<void> {
  try {
    await post(runPath(run, '/record'), { query, record: on, confirm: true })
    await details.load(run)
    tell('done', on ? "Recorded in the run's directory from now on. It also appears among the charts." : 'No longer recorded. Earlier records stay.')
  } catch (error) {
    tell('error', messageOf(error))
  }
}

function Record({ stream }: { stream: Stream }) {
  const [busy, setBusy] = useState(false)
  const recorded = isRecorded(stream)
  const may = mayRecord(stream)
  const change = () => (setBusy(true), void record(stream, !recorded).then(() => setBusy(false)))
  return (
    <button type="button" class={`text-button record ${recorded ? 'is-recorded' : ''}`} aria-pressed={recorded} disabled={!may || busy} title={!may ? 'Only controllers can record' : recorded ? "Recorded in the run's directory; click to stop" : "Record it in the run's directory from now on"} onClick={change}>
      <Icon name="record" size={12} /> {recorded ? 'recorded' : 'record'}
    </button>
  )
}

function Costs({ stream }: { stream: Stream }) {
  const now = stream.statistics.value
  const away = socket.link.value.kind !== 'open'
  const problem = stream.problem.value
  const lossy = now !== null && now.n_skipped + now.n_dropped + now.n_lost > 0
  const state = stream.ended.value ? 'ended' : away ? 'the server does not answer; trying again' : now?.lost ? 'the run does not answer; trying again' : ''
  const words = [state, now && heldOf(stream.records, now), problem ? '' : now ? now.note : stream.opened.value?.note, ...(now ? costsOf(now) : [])].filter(Boolean)
  return (
    <span class={`costs ${lossy || (state && !stream.ended.value) ? 'is-lossy' : ''}`} title={words.join(' · ')}>
      {lossy && <Icon name="warning" size={12} />}
      <span>{words.join(' · ')}</span>
      {now?.last_error && !problem && <span class="field-problem">{now.last_error}</span>}
    </span>
  )
}

/** How much of the stream the panel shows; of values that are no points of a line, how many came. */
function heldOf(records: Records, now: Statistics): string {
  if (records.shown) return sentenceOf(records.shown)
  const n = Math.max(now.n_records, records.n)
  return `${count(n)} ${n === 1 ? 'record' : 'records'}`
}

function costsOf(now: Statistics): string[] {
  const counted = ([n, words]: [number, string]) => (n > 0 ? `${count(n)} ${words}` : '')
  return [
    now.n_events > 0 ? `${number((1e6 * now.spent_s) / now.n_events, 3)} µs an event` : '',
    now.stride > 1 ? `one in ${now.stride} events` : '',
    ...([[now.n_skipped, 'skipped'], [now.n_dropped, 'dropped'], [now.n_lost, 'lost'], [now.n_unpaired, 'without a partner'], [now.n_unfit, 'no numbers'], [now.n_left_out, 'thinned on the way here'], [now.n_errors, 'errors']] as [number, string][]).map(counted),
  ].filter(Boolean)
}
