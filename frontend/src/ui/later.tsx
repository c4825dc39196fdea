// Pages that are loaded when they are first shown, or once the first charts are drawn: the first load does without them.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect } from 'preact/hooks'
import { file } from '../data/file'
import { Empty } from './parts'

type Component = () => JSX.Element

const AHEAD_MS = 3_000 // by then the first charts are drawn, on most machines
const AGAIN_MS = [1_000, 2_000, 5_000, 10_000]

/** Return a component that loads another one, and is that one from then on. */
export function later(title: string, load: () => Promise<Component>): Component {
  const loaded = signal<Component | null>(null)
  const nFailed = signal(0)
  let begun = false
  const begin = (): void => {
    if (begun) return
    begun = true
    load().then(
      (component) => (loaded.value = component),
      () => {
        nFailed.value++
        setTimeout(() => ((begun = false), begin()), AGAIN_MS[Math.min(nFailed.value, AGAIN_MS.length) - 1])
      },
    )
  }
  if (!file) setTimeout(begin, AHEAD_MS)
  return function Later() {
    useEffect(begin, [])
    const Loaded = loaded.value
    if (Loaded) return <Loaded />
    if (!nFailed.value) return <Empty title={`Loading ${title}…`} mark={false} />
    return (
      <Empty title={`${title} could not be loaded so far`} mark={false}>
        <p>The server does not answer. The page tries again by itself.</p>
        <button type="button" class="button" onClick={() => location.reload()}>
          Load the whole page again
        </button>
      </Empty>
    )
  }
}
