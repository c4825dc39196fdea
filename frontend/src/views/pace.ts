// Redraws follow the records: in the next frame while drawing is quick, and in a share of the time where it is not.

/** What is drawn and painted in a frame needs no rest; what takes longer leaves about half of the time to the reader. */
const FRAME_MS = 16

/** Return a function that has `draw` called in a frame soon after; calls until then count as one. */
export function paced(draw: () => void): { ask: () => void; stop: () => void } {
  let [frame, due_ms] = [0, 0]
  // A message of one's own arrives after the frame is painted, whose time counts too.
  const { port1, port2 } = new MessageChannel()
  let began_ms = 0
  port1.onmessage = () => (due_ms = 2 * performance.now() - began_ms - FRAME_MS)
  const turn = () => {
    began_ms = performance.now()
    if (began_ms < due_ms) return void (frame = requestAnimationFrame(turn))
    frame = 0
    draw()
    port2.postMessage(0)
  }
  return {
    ask: () => void (frame ||= requestAnimationFrame(turn)),
    stop: () => {
      cancelAnimationFrame(frame)
      port1.close()
    },
  }
}
