// A user's own chart: several tags under one name, created, edited and removed here, stored in the URL.

import { signal } from '@preact/signals'
import { useMemo, useState } from 'preact/hooks'
import { scalarTags, statisticTags } from '../../data/tags'
import { state, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { Dialog, IconButton, Search } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { counterparts, tagSearch, withChart, type Spec } from './sections'

interface Draft {
  /** The name of the chart that is changed; null for a new one. */
  was: string | null
  name: string
  tags: string[]
}

const draft = signal<Draft | null>(null)

const NO_TAGS: string[] = []
const ROW_HEIGHT = 30
const MAX_OFFERS = 6

export const newChart = (): void => void (draft.value = { was: null, name: '', tags: [] })

/** Change a chart of one's own; another's tag begins a new one, with its counterparts. */
export function editChart({ own, title, tags }: Spec): void {
  if (own || tags.length > 1) draft.value = { was: own ? title : null, name: title, tags: [...tags] }
  else {
    const [rest, same] = [...counterparts(scalarTags.peek().keys())].find(([, all]) => all.includes(tags[0]!)) ?? ['', [...tags]]
    draft.value = { was: null, name: rest, tags: same }
  }
}

function save(was: string | null, now: { name: string; tags: string[] } | null): void {
  update({ own: withChart(state.peek().own, was, now) })
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
  const close = () => (draft.value = null)
  return (
    <Dialog label={now.was === null ? 'New chart' : `Edit ${now.was}`} onClose={close}>
      <form
        class="own"
        onSubmit={(event) => {
          event.preventDefault()
          if (now.tags.length) save(now.was, { name: now.name.trim() || now.tags.join(', '), tags: now.tags })
        }}
      >
        <h2>{now.was === null ? 'New chart' : 'Edit chart'}</h2>
        <label class="own-name">
          Name
          <input value={now.name} maxLength={80} placeholder={now.tags.join(', ') || 'loss'} onInput={({ currentTarget }) => change({ name: currentTarget.value })} />
        </label>
        <ul class="own-tags" aria-label="Tags of this chart">
          {now.tags.length === 0 && <li class="muted">No tag yet: choose some below.</li>}
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
        <div class="own-end">
          {now.was !== null && (
            <button type="button" class="button button-bad" onClick={() => save(now.was, null)}>
              Remove this chart
            </button>
          )}
          <button type="button" class="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="button button-main" disabled={now.tags.length === 0}>
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
    <button type="button" class="button" title="Draw several tags in one chart (c)" onClick={newChart} disabled={scalarTags.value.size === 0}>
      <Icon name="plus" size={14} /> Chart
    </button>
  )
}
