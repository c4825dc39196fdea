// One chart as a card: its lines, and what can be done with it.

import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useMemo, useRef } from 'preact/hooks'
import { file } from '../../data/file'
import { tracks } from '../../data/scalars'
import { at, state, toggled, update } from '../../state/state'
import { dark } from '../../state/theme'
import { useRest } from '../../ui/atRest'
import { IconButton, Menu } from '../../ui/parts'
import { Chart, type Cursor } from '../../views/Chart'
import type { Line } from '../../views/draw'
import type { Model } from '../../views/plot'
import { neat, type Span } from '../../views/span'
import { Swatch } from '../../views/Swatch'
import { CardMenu } from './CardMenu'
import { drawingOf, kindOfX, without } from './cards'
import { askedOf, downloadsOf } from './downloads'
import { drawn, pointedLine } from './drawn'
import { copiesOf } from '../copied'
import { hereOn } from './here'
import { useLines } from './lines'
import { marks as allMarks, type CommandMark } from './marks'
import { editChart } from './OwnChart'
import { drag, moveCard, movesBy } from './order'
import { focusOf, type Spec } from './sections'
import { useTurn } from './turns'
import { styleOfTag } from './wanted'

/** One cursor for all charts. */
export const cursor = signal<Cursor | null>(null)

const NO_MARKS: CommandMark[] = []

interface PanelProps {
  spec: Spec
  large?: boolean
  /** The section that it stands in, and its place in the grid there. */
  section?: string
  place?: string
}

/** What a logarithmic axis has no place for. */
function leftOut(lines: readonly Line[], { xlog, ylog }: { xlog: boolean; ylog: boolean }): string[] {
  const some = (on: boolean, values: (line: Line) => ArrayLike<number>, what: string) => (on && lines.some((line) => Array.prototype.some.call(values(line), (v: number) => v <= 0 && v > -Infinity)) ? [what] : [])
  return [...some(ylog, (line) => line.raw ?? line.y, 'values ≤ 0 not drawn'), ...some(xlog, (line) => line.x, 'x ≤ 0 not drawn')]
}

export function Panel({ spec, large = false, section = '', place }: PanelProps) {
  const mine = useTurn()
  const { id, title, tags, own, facet = '' } = spec
  const single = !own && tags.length === 1
  const name = [single ? tags[0]! : title, facet].filter(Boolean).join(' · ')
  const drawing = drawingOf(id)
  const { x, apart, zoom } = drawing
  const kind = kindOfX(x)
  const yzoom = at.yzoom.value[id] ?? null
  const model = useRef<Model | null>(null)
  const alone = useMemo(() => signal<Cursor | null>(null), [])
  const { lines, among, restarts, notes: read, error, requests, runs, loading, momentAt } = useLines(tags, facet, large, drawing)
  const notes = useMemo(() => [read, ...leftOut(lines, drawing)].filter(Boolean).join(' · '), [read, lines, drawing.xlog, drawing.ylog])
  const all = kind ? allMarks[kind].value : NO_MARKS
  const now = hereOn(kind)
  const marks = useMemo(() => [...[...all, ...now].filter((mark) => runs.has(mark.run)), ...restarts], [all, [...runs].join(), restarts, now[0]?.x])

  const onZoom = (xs: Span | null, ys: Span | null) => {
    const { xzoom, yzoom } = state.peek()
    update({ ...(xs && (apart ? { xzoom: { ...xzoom, [id]: neat(xs) } } : { zoom: neat(xs) })), ...(ys && { yzoom: { ...yzoom, [id]: neat(ys) } }) })
  }
  const pick = (line: string, x: number) => {
    const moment = momentAt(line, x)
    if (moment) update({ moment: `${moment.wall} ${moment.run}`, focus: '' })
  }
  const reset = () => {
    const { xzoom, yzoom } = state.peek()
    update({ ...(apart ? { xzoom: without(xzoom, id) } : { zoom: null }), yzoom: without(yzoom, id) })
  }

  return (
    <article class="panel" tabIndex={-1} aria-label={name} style={place && { gridArea: place }} data-card={large ? undefined : id} data-section={large ? undefined : section} onKeyDown={(event) => section && movesBy(event, (by) => moveCard(section, id, by))}>
      <header class="panel-head" onPointerDown={section ? drag : undefined}>
        <h3 title={single ? name : `${name}: ${tags.join(', ')}`}>
          {title}
          {facet && <span class="panel-facet"> {facet}</span>}
        </h3>
        <span class="panel-notes" title={notes}>
          {notes}
        </span>
        <Tools>
          {() => (
            <>
              {(yzoom || zoom) && <IconButton icon="reset" label="Reset zoom (double click)" onClick={reset} />}
              <CardMenu id={id} name={name} section={section} drawing={drawing} />
              <IconButton icon="layers" label={own ? `Edit ${title}` : 'Draw together with other tags'} onClick={() => editChart(spec)} />
              {single && <PinButton tag={tags[0]!} />}
              <Menu icon="download" label={`Save or copy ${name}`} items={[...downloadsOf(name, requests, () => model.current), ...copiesOf({ title: name, asked: kind || tracks.peek().includes(x) ? askedOf(requests) : [], recorded: true, options: at.smoothby.value === 'point' ? { ...drawing, smooth: 0 } : drawing, link: { focus: focusOf(spec) } })]} />
              {!large && <IconButton icon="expand" label="Enlarge" onClick={() => update({ focus: focusOf(spec) })} />}
            </>
          )}
        </Tools>
      </header>
      {error && !lines.length ? (
        <Problem text={error} />
      ) : !mine || (loading && !lines.length) ? (
        <div class="panel-wait" role="status" aria-label="Loading" />
      ) : (
        <Chart
          id={(large ? 'large ' : '') + focusOf(spec)}
          title={name}
          lines={lines}
          among={among}
          marks={marks}
          kind={kind ?? 'number'}
          {...(!kind && { xname: x })}
          xlog={drawing.xlog}
          ylog={drawing.ylog}
          clip={drawing.clip}
          zoom={zoom}
          yzoom={yzoom}
          dark={dark.value}
          aside={large}
          cursor={apart ? alone : cursor}
          emphasis={pointedLine}
          onZoom={onZoom}
          {...(!file && { onPick: pick })}
          onReset={reset}
          onModel={(now) => (model.current = now)}
        />
      )}
      {tags.length > 1 && <TagNames tags={tags} />}
    </article>
  )
}

/** The buttons of a card: most of what it is made of, and none is needed while it passes by. */
function Tools({ children }: { children: () => ComponentChildren }) {
  return <div class="panel-tools">{useRest() && children()}</div>
}

/** Why nothing is drawn; of an expression, with the place below it. */
function Problem({ text }: { text: string }) {
  const [said, ...place] = text.split('\n')
  return (
    <div class="panel-problem" role="alert">
      <p>{said}</p>
      {place.length > 0 && <pre>{place.join('\n')}</pre>}
    </div>
  )
}

function PinButton({ tag }: { tag: string }) {
  const pinned = at.panel.value.includes(tag)
  return <IconButton icon="pin" label={pinned ? 'Unpin' : 'Pin to the top'} pressed={pinned} onClick={() => update({ panel: toggled(at.panel.peek(), tag) })} />
}

/** The tags of a chart of several tags; the cursor shows the runs. */
function TagNames({ tags }: { tags: readonly string[] }) {
  const alone = drawn.value.length === 1
  return (
    <ul class="panel-names" aria-label="Tags">
      {tags.map((tag, i) => (
        <li key={tag} title={tag}>
          <Swatch style={styleOfTag(i, alone)} />
          {tag}
        </li>
      ))}
    </ul>
  )
}
