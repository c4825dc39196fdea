// The saved views, to go to one, save what the page shows as another, rename or remove one.

import { signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import { addressNow, loadViews, renameView, savedViews, saveView } from '../data/savedViews'
import { canSave, savePage } from '../data/savePage'
import { session } from '../data/session'
import { printPage } from './printPage'
import { Dialog, IconButton } from './parts'

export const viewsOpen = signal(false)

export function SavedViews() {
  const [name, setName] = useState('')
  const may = session.value?.role === 'controller'
  const [now] = useState(addressNow)
  const [renaming, setRenaming] = useState('')
  useEffect(() => void loadViews(), [])
  const all = Object.entries(savedViews.value ?? {})
  const close = () => (viewsOpen.value = false)
  const known = all.some(([one]) => one === name.trim())
  return (
    <Dialog label="Saved views" onClose={close}>
      <div class="saved">
        <header class="columns-head">
          <h2>Saved views</h2>
          <IconButton icon="close" label="Close" onClick={close} />
        </header>
        {may && (
          <form
            class="saved-form"
            onSubmit={(event) => {
              event.preventDefault()
              if (name.trim()) void saveView(name.trim(), now).then(() => setName(''))
            }}
          >
            <input aria-label="Name of what the page shows" placeholder="A name for what the page shows now" maxLength={100} value={name} onInput={({ currentTarget }) => setName(currentTarget.value)} />
            <button type="submit" class="button button-main" disabled={!name.trim()}>
              {known ? 'Replace' : 'Save'}
            </button>
          </form>
        )}
        {all.length > 0 ? (
          <ul class="saved-list">
            {all.map(([one, address]) => (
              <li key={one}>
                {renaming === one ? (
                  <Renaming name={one} onEnd={() => setRenaming('')} />
                ) : (
                  <a href={address} aria-current={address === now ? 'true' : undefined} onClick={close}>
                    <bdi>{one}</bdi>
                  </a>
                )}
                <span class="muted">{/^#\/(\w*)/.exec(address)?.[1]}</span>
                {may && <IconButton icon="pencil" label={`Rename ${one}`} onClick={() => setRenaming(one)} />}
                {may && <IconButton icon="close" label={`Remove ${one}`} onClick={() => void saveView(one, null)} />}
              </li>
            ))}
          </ul>
        ) : (
          savedViews.value && <p class="muted">None yet. A view holds all of what the page shows: the filter, columns, charts, zoom and colours. It stands in views.json beside the runs, for everyone who opens them.</p>
        )}
        <footer class="saved-ways">
          <span class="muted">What the page shows now:</span>
          <button type="button" class="button" disabled={!canSave()} title={canSave() ? 'One file, which needs no server (s)' : 'Of the pages Charts, Runs and Media'} onClick={() => void savePage()}>
            Save as HTML
          </button>
          <button type="button" class="button" title="All of the page (p)" onClick={() => (close(), void printPage())}>
            Print
          </button>
        </footer>
      </div>
    </Dialog>
  )
}

/** The name of a view as it is changed: Enter takes it, Escape or leaving the field does not. */
function Renaming({ name, onEnd }: { name: string; onEnd: () => void }) {
  const box = useRef<HTMLInputElement>(null)
  useEffect(() => box.current!.select(), [])
  const rename = async (event: Event) => {
    event.preventDefault()
    const renamed = box.current!.value.trim()
    if (renamed && (await renameView(name, renamed))) onEnd()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return
    event.preventDefault() // the dialog stays open
    onEnd()
  }
  return (
    <form class="saved-form" onSubmit={rename}>
      <input ref={box} aria-label={`Another name for ${name}`} maxLength={100} defaultValue={name} onKeyDown={onKeyDown} onBlur={onEnd} />
    </form>
  )
}
