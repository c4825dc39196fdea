import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { paced } from '../src/views/pace'

const FRAME_MS = 16
const nothing = () => {}
let [now_ms, painted] = [0, nothing]
const frames: (() => void)[] = []

/** The browser's next frame; what was drawn in it takes some time to paint. */
function frame(paint_ms = 0): void {
  now_ms += FRAME_MS
  for (const turn of frames.splice(0)) turn()
  if (painted !== nothing) now_ms += paint_ms
  painted()
  painted = nothing
}

beforeEach(() => {
  vi.stubGlobal('requestAnimationFrame', (turn: () => void) => frames.push(turn))
  vi.stubGlobal('cancelAnimationFrame', () => void frames.splice(0))
  vi.spyOn(performance, 'now').mockImplementation(() => now_ms)
  class Channel {
    port1 = { onmessage: () => {}, close: () => {} }
    port2 = { postMessage: () => (painted = () => this.port1.onmessage()) }
  }
  vi.stubGlobal('MessageChannel', Channel)
})
afterEach(() => {
  frames.length = 0
  vi.restoreAllMocks()
  vi.unstubAllGlobals()
})

test('a picture that is drawn quickly follows the records in every frame, and once in each', () => {
  let n = 0
  const redraw = paced(() => n++)
  for (let i = 1; i <= 10; i++) {
    for (let k = 0; k < 5; k++) redraw.ask()
    frame(8)
    expect(n).toBe(i)
  }
})

test('one that takes long to draw and to paint leaves half of the time', () => {
  let n = 0
  const redraw = paced(() => {
    n++
    now_ms += 30
  })
  const began_ms = now_ms
  while (now_ms - began_ms < 10_000) {
    redraw.ask()
    frame(20)
  }
  const share = (50 * n) / (now_ms - began_ms)
  expect(share).toBeGreaterThan(0.35)
  expect(share).toBeLessThan(0.6)
})

test('nothing is drawn after the end', () => {
  let n = 0
  const redraw = paced(() => n++)
  redraw.ask()
  redraw.stop()
  frame()
  expect(n).toBe(0)
})
