// One chart as a card: its lines, and what can be done with it.

import { signal } from '@preact/signals'
import { useMemo, useRef } from 'preact/hooks'
import { at, state, toggled, update } from '../../state/state'
import { dark } from '../../state/theme'
import { IconButton, Menu } from '../../ui/parts'
import { Chart, type Cursor } from '../../views/Chart'
import type { Line } from '../../views/draw'
import type { Model } from '../../views/plot'
import { neat, type Span } from '../../views/span'
import { Swatch } from '../../views/Swatch'
import { downloadsOf } from './downloads'
import { drawn } from './drawn'
import { useLines } from './lines'
import { marks as allMarks } from './marks'
import { editChart } from './OwnChart'
import type { Spec } from './sections'
import { useTurn } from './turns'
import { styleOfTag } from './wanted'

/** One cursor for all charts. */
export const cursor = signal<Cursor | null>(null)

/** With more names than this a legend is unreadable: the cursor shows them instead. */
const MAX_NAMES = 40

export function Panel({ spec, large = false }: { spec: Spec; large?: boolean }) {
  const mine = useTurn()
  const { id, title, tags, own } = spec
  const alone = !own && tags.length === 1
  const name = alone ? tags[0]! : title
  const yzoom = at.yzoom.value[id] ?? null
  const model = useRef<Model | null>(null)
  const { lines, restarts, notes, error, requests, runs, loading } = useLines(tags, large)
  const all = allMarks[at.x.value].value
  const marks = useMemo(() => [...all.filter((mark) => runs.has(mark.run)), ...restarts], [all, [...runs].join(), restarts])

  const onZoom = (xs: Span | null, ys: Span | null) =>
    update({ ...(xs && { zoom: neat(xs) }), ...(ys && { yzoom: { ...state.peek().yzoom, [id]: neat(ys) } }) })
  const reset = () => {
    const { [id]: _, ...rest } = state.peek().yzoom
    update({ zoom: null, yzoom: rest })
  }

  return (
    <article class="panel" aria-label={name}>
      <header class="panel-head">
        <h3 title={alone ? name : `${title}: ${tags.join(', ')}`}>{title}</h3>
        <span class="panel-notes" title={notes}>
          {notes}
        </span>
        <div class="panel-tools">
          {(yzoom || at.zoom.value) && <IconButton icon="reset" label="Reset zoom (double click)" onClick={reset} />}
          <IconButton icon="layers" label={own ? `Edit ${title}` : 'Draw together with other tags'} onClick={() => editChart(spec)} />
          {alone && <PinButton tag={name} />}
          <Menu icon="download" label={`Download ${name}`} items={downloadsOf(name, requests, () => model.current)} />
          {!large && <IconButton icon="expand" label="Enlarge" onClick={() => update({ focus: id })} />}
        </div>
      </header>
      {error && !lines.length ? (
        <p class="panel-problem" role="alert">
          {error}
        </p>
      ) : !mine || (loading && !lines.length) ? (
        <div class="panel-wait" role="status" aria-label="Loading" />
      ) : (
        <Chart
          id={(large ? 'large ' : '') + id}
          title={name}
          lines={lines}
          marks={marks}
          kind={at.x.value}
          xlog={at.xlog.value && at.x.value !== 'wall'}
          ylog={at.ylog.value}
          clip={at.clip.value}
          zoom={at.zoom.value}
          yzoom={yzoom}
          dark={dark.value}
          cursor={cursor}
          onZoom={onZoom}
          onReset={reset}
          onModel={(now) => (model.current = now)}
        />
      )}
      {large ? <Names lines={lines} /> : tags.length > 1 && <TagNames tags={tags} />}
    </article>
  )
}

function PinButton({ tag }: { tag: string }) {
  const pinned = at.panel.value.includes(tag)
  return <IconButton icon="pin" label={pinned ? 'Unpin' : 'Pin to the top'} pressed={pinned} onClick={() => update({ panel: toggled(at.panel.peek(), tag) })} />
}

/** Which line is which, where there is room to say it. */
function Names({ lines }: { lines: readonly Line[] }) {
  const whole = lines.filter(({ earlier }) => !earlier)
  if (whole.length > MAX_NAMES) return null
  return (
    <ul class="panel-names" aria-label="Lines">
      {whole.map(({ id, label, style }) => (
        <li key={id}>
          <Swatch style={style} />
          {label}
        </li>
      ))}
    </ul>
  )
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
