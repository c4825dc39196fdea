// One panel: its streams in the view that the server chose for them, what each costs, and what can be done with it.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useChoice } from '../../data/choice'
import { details } from '../../data/details'
import { byKey, labelOf, styleOfRun } from '../../data/runs'
import { useStreams } from '../../data/stream'
import { dark } from '../../state/theme'
import { Dialog, IconButton, Menu } from '../../ui/parts'
import type { Model } from '../../views/plot'
import { styleOf } from '../../views/palette'
import type { Series } from '../../views/series'
import { View } from '../../views/View'
import { downloadsOf } from './downloads'
import { Options } from './Options'
import { cursor } from './cursor'
import type { AskedPanel, AskedStream } from './panels'
import { QueryBox } from './QueryBox'
import { StreamRow } from './StreamRow'

interface AskPanelProps {
  panel: AskedPanel
  onChange: (panel: AskedPanel | null) => void
  onEdit: (query: string) => void
}

export function AskPanel({ panel, onChange, onEdit }: AskPanelProps) {
  const [opened, setOpened] = useState<'' | 'options' | 'add'>('')
  const [large, setLarge] = useState(false)
  const { streams: asked, view: wanted, pinned } = panel
  const root = useRef<HTMLElement>(null)
  const title = asked.map(({ query }) => query).join(' + ')
  const runs = new Set(asked.map(({ run }) => run))
  const removeStream = (i: number) => onChange(asked.length > 1 ? { ...panel, streams: asked.filter((_, j) => j !== i) } : null)
  const changeStream = (i: number, stream: AskedStream) => onChange({ ...panel, streams: asked.map((one, j) => (i === j ? stream : one)) })
  const names = namesOf(asked)
  const found = useStreams(asked)
  const choice = useChoice(found, names, wanted)
  const model = useRef<Model | null>(null)
  const toggle = (what: 'options' | 'add') => setOpened(opened === what ? '' : what)
  const body = (id: string) => <Body id={id} panel={panel} names={names} view={choice.view} problem={choice.problem} onOwnView={wanted ? () => onChange({ ...panel, view: '' }) : null} onModel={(now) => (model.current = now)} />
  return (
    <article class="panel ask-panel" aria-label={title} ref={root}>
      <header class="panel-head">
        <h3 title={title}>
          <button type="button" class="ask-query" onClick={() => onEdit(asked[0]!.query)} title="Put this query into the box">
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
          <IconButton icon="pin" label={pinned ? 'Pinned: stays when the others are removed' : 'Pin this panel'} pressed={pinned} onClick={() => onChange({ ...panel, pinned: !pinned })} />
          <Menu icon="download" label="Download" items={downloadsOf({ title, names, streams: found, model: () => model.current, root: () => root.current })} />
          <IconButton icon="expand" label="Show this panel large" onClick={() => setLarge(true)} />
          <IconButton icon="close" label="Remove this panel" onClick={() => onChange(null)} />
        </div>
      </header>
      {opened === 'options' && <Options view={choice.view} panel={panel} onChange={onChange} />}
      {opened === 'add' && <Add run={asked[0]!.run} onAdd={(run, query) => (onChange({ ...panel, streams: [...asked, { run, query, second: false }] }), setOpened(''))} onClose={() => setOpened('')} />}
      {!large && body('panel')}
      <ul class="streams" aria-label="Streams of this panel">
        {asked.map((one, i) => (
          <StreamRow
            key={`${one.run}|${one.query}`}
            stream={found[i]!}
            name={runs.size > 1 || asked.length === 1 ? names[i]! : one.query}
            style={styleAt(asked, i)}
            single={asked.length === 1}
            second={choice.view === 'line' && asked.length > 1 ? one.second : null}
            onSecond={(second) => changeStream(i, { ...one, second })}
            onRemove={() => removeStream(i)}
          />
        ))}
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

const VIEW_WORDS: Record<string, string> = { line3d: '3-D line', xy: 'x, y', heatmap: 'heat map' }

const namesOf = (asked: readonly AskedStream[]): string[] => {
  const same = (query: string) => asked.filter((one) => one.query === query).length > 1
  return asked.map(({ run, query }) => (same(query) ? `${labelOf(run)} · ${query}` : query))
}

/** A panel of one stream has the run's own colour; in others each stream has one. */
const styleAt = (asked: readonly AskedStream[], i: number) => (asked.length === 1 ? styleOfRun(asked[0]!.run) : styleOf(i, Math.floor(i / 8)))

interface BodyProps {
  id: string
  panel: AskedPanel
  names: readonly string[]
  view: string
  problem: string | null
  onOwnView: (() => void) | null
  onModel: (model: Model | null) => void
}

function Body({ id, panel, names, view, problem, onOwnView, onModel }: BodyProps) {
  const { streams: asked, options } = panel
  const found = useStreams(asked)
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
    () => asked.map(({ run, query, second }, i): Series => ({ id: `${run} ${query}`, label: names[i]!, style: styleAt(asked, i), records: found[i]!.records, started: byKey.peek().get(run)?.started ?? null, second })),
    [asked.map(({ run, query, second }) => `${run}|${query}|${second}`).join('\n'), names.join('\n')],
  )
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
      ) : empty && refused.every(Boolean) ? null : empty ? (
        <p class="chart-empty">{!idle ? 'Asking …' : found.every((stream) => stream.ended.value) ? 'The stream ended without a record' : waitingFor(asked)}</p>
      ) : (
        view && <View id={`${id} ${series[0]!.id}`} title={names.join(', ')} view={view} series={series} options={options} version={last.current} dark={dark.value} cursor={cursor} onModel={tell} />
      )}
      {state && view === 'line' && <p class="names">{state}</p>}
    </div>
  )
}

function waitingFor(asked: readonly AskedStream[]): string {
  const paused = asked.some(({ run }) => details.value.get(run)?.state === 'paused' || byKey.value.get(run)?.state === 'paused')
  if (paused) return 'No records yet: the run is paused'
  return asked.some(({ query }) => /\b(every|per|when)=/.test(query)) ? 'No records yet: the first window is still open' : 'No records yet'
}

function Add({ run, onAdd, onClose }: { run: string; onAdd: (run: string, query: string) => void; onClose: () => void }) {
  const [text, setText] = useState('')
  const [key, setKey] = useState(run)
  return (
    <div class="ask-add">
      <select aria-label="Run of the new stream" value={key} onChange={({ currentTarget }) => setKey(currentTarget.value)}>
        {[...byKey.value.values()].map((one) => (
          <option key={one.key} value={one.key}>
            {labelOf(one.key)}
          </option>
        ))}
      </select>
      <QueryBox id="add" run={key} text={text} description={details.value.get(key)?.description ?? null} button="Add" autofocus onText={setText} onAsk={(query) => onAdd(key, query)} onEscape={onClose} />
    </div>
  )
}
