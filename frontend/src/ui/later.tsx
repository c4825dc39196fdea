// Pages that are loaded when they are first shown, or once the first charts are drawn: the first load does without them.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect } from 'preact/hooks'
import { ApiError, untilAnswered } from '../data/api'
import { file } from '../data/file'
import { Empty } from './parts'

type Component = () => JSX.Element | null

const AHEAD_MS = 3_000 // by then the first charts are drawn, on most machines

/** Return a component that loads another one, as often as it takes, and is that one from then on. */
export function later(title: string, load: () => Promise<Component>): Component {
  const loaded = signal<Component | null>(null)
  let begun = false
  const begin = (): void => {
    if (begun) return
    begun = true
    const away = () => Promise.reject(new ApiError(0, 'Unreachable', `${title} could not be loaded`))
    void untilAnswered(() => load().catch(away)).then((component) => (loaded.value = component))
  }
  // Whether this is a saved file is known by then; and who scrolls does not feel it.
  setTimeout(() => file || (window.requestIdleCallback ?? setTimeout)(begin), AHEAD_MS)
  return function Later() {
    useEffect(begin, [])
    const Loaded = loaded.value
    return Loaded ? <Loaded /> : <Empty title={`Loading ${title}…`} mark={false} />
  }
}
