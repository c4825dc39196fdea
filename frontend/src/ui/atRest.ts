// Parts that are used, not looked at, come once nothing has scrolled for a moment: so scrolling stays smooth.

import { useEffect, useState } from 'preact/hooks'

const REST_MS = 100
const waiting = new Set<() => void>()
let timer = 0

function settle(): void {
  timer = 0
  for (const go of waiting) go()
  waiting.clear()
}

function wait(): void {
  clearTimeout(timer)
  timer = window.setTimeout(settle, REST_MS)
}

/** Whether nothing has scrolled for a moment since the part came; then it stays. */
export function useRest(): boolean {
  const [rests, setRests] = useState(false)
  useEffect(() => {
    const go = () => setRests(true)
    waiting.add(go)
    if (!timer) wait()
    return () => void waiting.delete(go)
  }, [])
  return rests
}

/** Notice what scrolls, wherever it is. */
export function followScrolling(): void {
  document.addEventListener('scroll', () => timer && wait(), { capture: true, passive: true })
}
