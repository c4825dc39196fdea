// One panel: its streams in the view that the server chose for them, what each costs, and what can be done with it.

import { Fragment } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useChoice } from '../../data/choice'
import type { Asked } from '../../data/copyAs'
import { details } from '../../data/details'
import { styleOfRun, stylesOfRuns } from '../../data/looks'
import { byKey, knownRun, labelOf, live } from '../../data/runs'
import { useStreams, type Stream } from '../../data/stream'
import { dark } from '../../state/theme'
import { Dialog, IconButton, Menu } from '../../ui/parts'
import type { Mark } from '../../views/draw'
import type { Model } from '../../views/plot'
import { styleOf, type LineStyle } from '../../views/palette'
import type { Series } from '../../views/series'
import { View } from '../../views/View'
import { focusHotkey } from '../../ui/shortcuts'
import { draft } from './asked'
import { marksOf } from '../charts/marks'
import { copiesOf } from '../copied'
import { downloadsOf } from './downloads'
import { isPattern, membersOf, streamsOfRuns, type RunStream } from './fleet'
import { FleetRow } from './FleetRow'
import { Options } from './Options'
import { cursor } from './cursor'
import type { AskedPanel, AskedStream } from './panels'
import { QueryBox } from './QueryBox'
import { isPriced, isRecorded, mayRecord, record, StreamRow } from './StreamRow'

function askedOf({ run, query }: AskedStream): Asked[] {
  const one = isPattern(run) ? run : knownRun(run)
  return one ? [{ run: one, query }] : []
}

interface AskPanelProps {
  panel: AskedPanel
  /** The control or action whose commands are marked; by default all are. */
  only?: string
  onChange: (panel: AskedPanel | null) => void
}

export function AskPanel({ panel, only = '', onChange }: AskPanelProps) {
  const [opened, setOpened] = useState<'' | 'options' | 'add'>('')
  const [large, setLarge] = useState(false)
  const { streams: asked, view: wanted, pinned } = panel
  const root = useRef<HTMLElement>(null)
  const title = asked.map(({ query }) => query).join(' + ')
  const shown = useStreamsOfRuns(asked)
  const n_runs = new Set(asked.map(({ run }) => run)).size
  const removeStream = (i: number) => onChange(asked.length > 1 ? { ...panel, streams: asked.filter((_, j) => j !== i) } : null)
  const changeStream = (i: number, stream: AskedStream) => onChange({ ...panel, streams: asked.map((one, j) => (i === j ? stream : one)) })
  const names = namesOf(shown)
  const styles = stylesOfAll(panel, shown)
  const found = useStreams(shown)
  const choice = useChoice(found, names, wanted)
  const model = useRef<Model | null>(null)
  const recordable = found.filter((stream, i) => !isPattern(asked[shown[i]!.of]!.run) && mayRecord(stream))
  const pin = () => {
    onChange({ ...panel, pinned: !pinned })
    if (!pinned) for (const stream of recordable) if (!isRecorded(stream)) void record(stream, true)
  }
  const toggle = (what: 'options' | 'add') => setOpened(opened === what ? '' : what)
  const body = (id: string) => <Body id={id} panel={panel} only={only} shown={shown} names={names} styles={styles} view={choice.view} problem={choice.problem} onOwnView={wanted ? () => onChange({ ...panel, view: '' }) : null} onModel={(now) => (model.current = now)} />
  return (
    <article class="panel ask-panel" aria-label={title} ref={root}>
      <header class="panel-head">
        <h3 title={title}>
          <button type="button" class="ask-query" onClick={() => ((draft.value = asked[0]!.query), focusHotkey('q'))} title="Put this query into the box">
            {asked[0]!.query}
          </button>
        </h3>
        <span class="panel-notes">{asked.length > 1 ? `and ${asked.length - 1} more` : labelOf(asked[0]!.run)}</span>
        <div class="panel-tools">
          {choice.possible.length > 0 && (
            <select aria-label="View" class="view-select" value={wanted || choice.view} onChange={({ currentTarget }) => onChange({ ...panel, view: currentTarget.value })}>
              {[...new Set([...choice.possible, wanted || choice.view])].filter(Boolean).map((one) => (
                <option key={one} value={one}>
                  {VIEW_WORDS[one] ?? one}
                </option>
              ))}
              {wanted && <option value="">automatic</option>}
            </select>
          )}
          <IconButton icon="plus" label="Add a stream to this panel" pressed={opened === 'add'} onClick={() => toggle('add')} />
          <IconButton icon="settings" label="Options of this panel" pressed={opened === 'options'} onClick={() => toggle('options')} />
          <IconButton icon="pin" label={pinned ? 'Pinned: stays when the others are removed' : `Pin this panel${recordable.length > 0 ? ', and record it from now on' : ''}`} pressed={pinned} onClick={pin} />
          <Menu icon="download" label="Save or copy" items={[...downloadsOf({ title, streams: found, model: () => model.current, root: () => root.current }), ...copiesOf({ title, asked: asked.flatMap(askedOf), recorded: false })]} />
          <IconButton icon="expand" label="Show this panel large" onClick={() => setLarge(true)} />
          <IconButton icon="close" label="Remove this panel" onClick={() => onChange(null)} />
        </div>
      </header>
      {opened === 'options' && <Options view={choice.view} panel={panel} onChange={onChange} />}
      {opened === 'add' && <Add run={asked[0]!.run} onAdd={(run, query) => (onChange({ ...panel, streams: [...asked, { run, query, second: false }] }), setOpened(''))} onClose={() => setOpened('')} />}
      {!large && body('panel')}
      <ul class={shown.length > MANY ? 'streams streams-many' : 'streams'} aria-label="Streams of this panel" tabIndex={shown.length > MANY ? 0 : undefined}>
        {asked.map((one, i) => {
          const fleet = isPattern(one.run)
          const second = choice.view === 'line' && asked.length > 1 ? one.second : null
          const onSecond = (second: boolean) => changeStream(i, { ...one, second })
          const onRemove = asked.length > 1 ? () => removeStream(i) : null
          const mine = shown.flatMap(({ of }, at) => (of === i ? at : []))
          const confirm = (stream: Stream) => (fleet ? mine.map((at) => found[at]!).filter(isPriced) : [stream]).forEach((one) => one.confirm())
          return (
            <Fragment key={`${one.run}|${one.query}`}>
              {fleet && <FleetRow pattern={one.run} query={asked.length > 1 ? one.query : ''} keys={mine.map((at) => shown[at]!.run)} second={second} onSecond={onSecond} onRemove={onRemove} />}
              {mine.map((at) => (
                <StreamRow
                  key={shown[at]!.run}
                  stream={found[at]!}
                  name={fleet ? labelOf(shown[at]!.run) : n_runs > 1 || asked.length === 1 ? names[at]! : one.query}
                  style={styles[at]!}
                  single={asked.length === 1 && !fleet}
                  member={fleet}
                  second={fleet ? null : second}
                  onSecond={onSecond}
                  onRemove={fleet ? null : onRemove}
                  onConfirm={confirm}
                  onCorrect={(query) => changeStream(i, { ...one, query })}
                />
              ))}
            </Fragment>
          )
        })}
      </ul>
      {large && (
        <Dialog label={title} wide onClose={() => setLarge(false)}>
          <div class="focus-close">
            <IconButton icon="close" label="Close" onClick={() => setLarge(false)} />
          </div>
          <section class="panel ask-large">
            <header class="panel-head">
              <h3>{title}</h3>
            </header>
            {body('large')}
          </section>
        </Dialog>
      )}
    </article>
  )
}

/** More streams than this are scrolled. */
const MANY = 6

const VIEW_WORDS: Record<string, string> = { line3d: '3-D line', xy: 'x, y', heatmap: 'heat map' }

/** The streams of a panel, one for each run. Runs of a pattern stay as long as the panel, also after their end. */
function useStreamsOfRuns(asked: readonly AskedStream[]): RunStream[] {
  const joined = useRef(new Set<string>()).current
  if (asked.some(({ run }) => isPattern(run))) for (const { key } of live.value) joined.add(key)
  return streamsOfRuns(asked, [...joined].map((key) => knownRun(key)!))
}

const namesOf = (shown: readonly AskedStream[]): string[] => {
  const same = (query: string) => shown.filter((one) => one.query === query).length > 1
  return shown.map(({ run, query }) => (same(query) ? `${labelOf(run)} · ${query}` : query))
}

/** Where one query is drawn, runs have their own colours; in other panels each stream has one. */
function stylesOfAll({ streams }: AskedPanel, shown: readonly AskedStream[]): LineStyle[] {
  if (streams.length > 1) return shown.map((_, i) => styleOf(i, Math.floor(i / 8)))
  return shown.length === 1 ? [styleOfRun(shown[0]!.run)] : stylesOfRuns(shown.map(({ run }) => run))
}

interface BodyProps {
  id: string
  panel: AskedPanel
  only: string
  shown: readonly RunStream[]
  names: readonly string[]
  styles: readonly LineStyle[]
  view: string
  problem: string | null
  onOwnView: (() => void) | null
  onModel: (model: Model | null) => void
}

function Body({ id, panel, only, shown, names, styles, view, problem, onOwnView, onModel }: BodyProps) {
  const found = useStreams(shown)
  const box = useRef<HTMLDivElement>(null)
  const [inView, setInView] = useState(true)
  const last = useRef(0)
  const [state, setState] = useState('')
  const tell = (model: Model | null) => {
    setState(model?.lines.find((line) => line.state)?.state ?? '')
    onModel(model)
  }
  useEffect(() => {
    const seen = new IntersectionObserver(([entry]) => setInView(entry!.isIntersecting), { rootMargin: '100px' })
    seen.observe(box.current!)
    return () => seen.disconnect()
  }, [])
  // An invisible panel is not drawn: it reads no versions, so changes do not redraw it.
  if (inView) last.current = found.reduce((sum, { version }) => sum + version.value, 0)
  const series = useMemo(
    () => shown.map(({ run, query, second }, i): Series => ({ id: `${run} ${query}`, label: names[i]!, style: styles[i]!, records: found[i]!.records, started: knownRun(run)?.started ?? null, second })),
    [shown.map(({ run, query, second }) => `${run}|${query}|${second}`).join('\n'), names.join('\n'), JSON.stringify(styles)],
  )
  const { x, frames } = panel.options
  const commands = JSON.stringify(frames || x === 'index' ? [] : marksOf([...new Set(shown.map(({ run }) => run))].flatMap((run) => knownRun(run) ?? []), x, only))
  const marks = useMemo(() => JSON.parse(commands) as Mark[], [commands])
  const refused = found.map((stream) => stream.problem.value)
  const empty = found.every(({ records }) => records.n === 0)
  const idle = found.every((stream) => stream.opened.value || stream.problem.value)
  return (
    <div class="ask-body" ref={box}>
      {problem ? (
        <div class="ask-clash" role="alert">
          <p>{problem}</p>
          {onOwnView && (
            <button type="button" class="button" onClick={onOwnView}>
              Choose the view automatically
            </button>
          )}
        </div>
      ) : shown.length === 0 ? (
        <p class="chart-empty">No live run has such a name yet. Those that begin will join</p>
      ) : empty && refused.every(Boolean) ? null : empty ? (
        <p class="chart-empty">{!idle ? 'Asking …' : found.every((stream) => stream.ended.value) ? 'The stream ended without a record' : (found.map(({ statistics }) => statistics.value?.note).find(Boolean) ?? waitingFor(shown))}</p>
      ) : (
        view && <View id={`${id} ${panel.streams[0]!.run} ${panel.streams[0]!.query}`} title={names.join(', ')} view={view} series={series} options={panel.options} version={last.current} dark={dark.value} cursor={cursor} marks={marks} onModel={tell} />
      )}
      {state && view === 'line' && <p class="names">{state}</p>}
    </div>
  )
}

function waitingFor(asked: readonly AskedStream[]): string {
  const paused = asked.some(({ run }) => details.of(run)?.state === 'paused' || byKey.value.get(run)?.state === 'paused')
  if (paused) return 'No records yet: the run is paused'
  return asked.some(({ query }) => /\b(every|per|when)=/.test(query)) ? 'No records yet: the first window is still open' : 'No records yet'
}

/** The newest run of a pattern, or the run itself: the one that says what can be asked. */
const exampleOf = (run: string): string => (isPattern(run) ? (membersOf(run, live.value).at(-1)?.key ?? '') : run)

function Add({ run, onAdd, onClose }: { run: string; onAdd: (run: string, query: string) => void; onClose: () => void }) {
  const [text, setText] = useState('')
  const [key, setKey] = useState(run)
  return (
    <div class="ask-add">
      <select aria-label="Run of the new stream" value={key} onChange={({ currentTarget }) => setKey(currentTarget.value)}>
        {isPattern(run) && <option value={run}>{run}</option>}
        {[...byKey.value.values()].map((one) => (
          <option key={one.key} value={one.key}>
            {labelOf(one.key)}
          </option>
        ))}
      </select>
      <QueryBox id="add" run={exampleOf(key)} text={text} button="Add" autofocus onText={setText} onAsk={(query) => onAdd(key, query)} onEscape={onClose} />
    </div>
  )
}
