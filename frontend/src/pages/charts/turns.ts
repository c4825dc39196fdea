// Charts take turns to appear, a few a frame, so that scrolling stays smooth however many come into sight.

import { useEffect, useState } from 'preact/hooks'

const N_A_FRAME = 2
const queue: (() => void)[] = []
let running = false

function serve(): void {
  for (const go of queue.splice(0, N_A_FRAME)) go()
  if (queue.length) requestAnimationFrame(serve)
  else running = false
}

export function useTurn(): boolean {
  const [mine, setMine] = useState(false)
  useEffect(() => {
    const go = () => setMine(true)
    queue.push(go)
    if (!running) {
      running = true
      requestAnimationFrame(serve)
    }
    return () => {
      const at = queue.indexOf(go)
      if (at >= 0) queue.splice(at, 1)
    }
  }, [])
  return mine
}
