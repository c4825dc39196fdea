// A user's own chart: several tags, or expressions over them, under one name, created, edited and removed here, stored in the URL.

import { signal } from '@preact/signals'
import { useMemo, useState } from 'preact/hooks'
import { scalarTags, statisticTags } from '../../data/tags'
import { at, state, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { Dialog, IconButton, Search, Toggle } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { cardOf, withCard, type Card } from './cards'
import { ExpressionInput } from './ExpressionInput'
import { counterparts, tagSearch, withChart, type Spec } from './sections'
import { XChoice } from './XChoice'

interface Draft {
  /** The name of the chart that is changed; null for a new one. */
  was: string | null
  name: string
  /** Tags, and expressions over tags. */
  tags: string[]
  /** An expression that is being written. */
  text: string
  card: Card
}

const draft = signal<Draft | null>(null)

const NO_TAGS: string[] = []
const ROW_HEIGHT = 30
const MAX_OFFERS = 6

export const newChart = (): void => void (draft.value = { was: null, name: '', tags: [], text: '', card: {} })

/** Change a chart of one's own; another's tag begins a new one, with its counterparts. */
export function editChart({ id, own, title, tags }: Spec): void {
  if (own || tags.length > 1) draft.value = { was: own ? title : null, name: title, tags: [...tags], text: '', card: cardOf(state.peek().cards, id) }
  else {
    const [rest, same] = [...counterparts(scalarTags.peek().keys())].find(([, all]) => all.includes(tags[0]!)) ?? ['', [...tags]]
    draft.value = { was: null, name: rest, tags: same, text: '', card: {} }
  }
}

function save(was: string | null, now: Draft | null): void {
  const { own, cards } = state.peek()
  const lists = withChart(own, was, now)
  const place = was === null ? lists.length - 1 : own.findIndex(([name]) => name === was)
  const others = was === null ? cards : withCard(cards, `own ${was}`, {})
  update({ own: lists, cards: now ? withCard(others, `own ${lists[place]![0]}`, now.card) : others })
  draft.value = null
}

export function OwnChart() {
  const now = draft.value
  return now && <Editor key={now.was ?? ''} draft={now} />
}

function Editor({ draft: now }: { draft: Draft }) {
  const [search, setSearch] = useState('')
  const known = scalarTags.value
  const statistics = search ? statisticTags.value : NO_TAGS
  const found = useMemo(() => [...known.keys(), ...statistics].filter(tagSearch(search).matches), [known, statistics, search])
  const heights = useMemo(() => found.map(() => ROW_HEIGHT), [found])
  const offers = useMemo(() => [...counterparts(known.keys())].slice(0, MAX_OFFERS), [known])
  const change = (patch: Partial<Draft>) => (draft.value = { ...now, ...patch })
  const toggle = (tag: string) => change({ tags: now.tags.includes(tag) ? now.tags.filter((one) => one !== tag) : [...now.tags, tag] })
  /** The tags, with the expression that is being written. */
  const written = () => [...new Set([...now.tags, now.text.trim()])].filter(Boolean)
  const close = () => (draft.value = null)
  return (
    <Dialog label={now.was === null ? 'New chart' : `Edit ${now.was}`} onClose={close}>
      <form
        class="own"
        onSubmit={(event) => {
          event.preventDefault()
          const tags = written()
          if (tags.length) save(now.was, { ...now, tags, name: now.name.trim() || tags.join(', ') })
        }}
      >
        <h2>{now.was === null ? 'New chart' : 'Edit chart'}</h2>
        <label class="own-name">
          Name
          <input value={now.name} maxLength={80} placeholder={now.tags.join(', ') || 'loss'} onInput={({ currentTarget }) => change({ name: currentTarget.value })} />
        </label>
        <ul class="own-tags" aria-label="Tags of this chart">
          {now.tags.length === 0 && <li class="muted">No tag yet: choose some below, or write an expression.</li>}
          {now.tags.map((tag) => (
            <li key={tag} class="chip">
              <span>{tag}</span>
              <IconButton icon="close" label={`Take ${tag} out`} onClick={() => toggle(tag)} />
            </li>
          ))}
        </ul>
        {now.tags.length === 0 && offers.length > 0 && (
          <p class="own-offers">
            <span class="muted">Together:</span>
            {offers.map(([rest, tags]) => (
              <button key={rest} type="button" class="button" title={tags.join(', ')} onClick={() => change({ name: now.name || rest, tags })}>
                {rest} <span class="muted">{tags.length}</span>
              </button>
            ))}
          </p>
        )}
        <Search label="Search tags to add" placeholder="Search tags" value={search} problem={tagSearch(search).problem} onChange={setSearch} />
        <Rows
          class="own-list"
          label="Tags"
          heights={heights}
          keyOf={(i) => found[i]!}
          row={(i) => (
            <button type="button" class="own-tag" role="checkbox" aria-checked={now.tags.includes(found[i]!)} onClick={() => toggle(found[i]!)}>
              <Icon name={now.tags.includes(found[i]!) ? 'close' : 'plus'} size={14} />
              {found[i]}
            </button>
          )}
        />
        <div class="own-row">
          <span>Expression</span>
          <ExpressionInput text={now.text} onText={(text) => change({ text })} onAdd={() => change({ tags: written(), text: '' })} />
        </div>
        <div class="own-row">
          <span>Over</span>
          <XChoice x={now.card.x ?? at.x.value} onChange={(x) => change({ card: { ...now.card, x } })} />
          <Toggle label="points" title="Points instead of lines" on={now.card.points ?? false} onChange={(points) => change({ card: { ...now.card, points } })} />
        </div>
        <div class="own-end">
          {now.was !== null && (
            <button type="button" class="button button-bad" onClick={() => save(now.was, null)}>
              Remove this chart
            </button>
          )}
          <button type="button" class="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="button button-main" disabled={written().length === 0}>
            {now.was === null ? 'Add' : 'Save'}
          </button>
        </div>
      </form>
    </Dialog>
  )
}

/** The button that begins a new chart. */
export function NewChart() {
  return (
    <button type="button" class="button" title="Draw several tags, or an expression over them, in one chart (c)" onClick={newChart} disabled={scalarTags.value.size === 0}>
      <Icon name="plus" size={14} /> Chart
    </button>
  )
}
