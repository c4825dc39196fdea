// Redraws follow the records: in the next frame while drawing is quick, and in a share of the time where it is not.

/** After a redraw, this many times as long passes: half of the time is left for the reader, and for other charts. */
const REST = 1

/** Return a function that has `draw` called in a frame soon after; calls until then count as one. */
export function paced(draw: () => void): { ask: () => void; stop: () => void } {
  let [frame, due_ms] = [0, 0]
  // A message of one's own arrives after the frame is painted, whose time counts too.
  const { port1, port2 } = new MessageChannel()
  let began_ms = 0
  port1.onmessage = () => (due_ms = performance.now() + REST * (performance.now() - began_ms))
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
