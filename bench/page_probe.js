// Looks at a page from within: where the first chart has colour, and how evenly frames follow each other.
// TensorBoard's charts are seen too: a canvas that a worker draws is copied to be read, and a path of an SVG counts.

window.probe = (() => {
  const first = () => document.querySelector('article canvas')
  const copy = document.createElement('canvas')
  const pixels = (canvas = first()) => {
    if (!canvas?.width) return null
    const { width, height } = canvas
    if (canvas.matches('line-chart canvas')) {
      Object.assign(copy, { width, height })
      copy.getContext('2d').drawImage(canvas, 0, 0)
      canvas = copy
    }
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height)
    const coloured = (x, y) => {
      const i = 4 * (y * width + x)
      const [r, g, b, a] = [data[i], data[i + 1], data[i + 2], data[i + 3]]
      return a > 100 && Math.max(r, g, b) - Math.min(r, g, b) > 30
    }
    return { width, height, coloured }
  }

  const columnHas = (coloured, x, from, to) => {
    for (let y = from; y <= to; y++) if (coloured(x, y)) return true
    return false
  }

  const hasLine = (canvas) => {
    const seen = pixels(canvas)
    if (!seen) return false
    for (let x = 0; x < seen.width; x++) if (columnHas(seen.coloured, x, 0, seen.height - 1)) return true
    return false
  }

  /** Whether a line is drawn. */
  const drawn = () =>
    [first(), ...document.querySelectorAll('line-chart canvas')].some(hasLine) ||
    [...document.querySelectorAll('line-chart svg path')].some((path) => path.getBBox().width > 100)

  /** When a line was first on the screen, in ms since the navigation began. */
  const arrival = () =>
    new Promise((resolve) => {
      const look = () => (drawn() ? resolve(performance.now()) : requestAnimationFrame(look))
      look()
    })

  /** How many separate peaks reach the upper part of the chart. */
  const peaks = () => {
    const { width, height, coloured } = pixels()
    let [n, inside] = [0, false]
    for (let x = 0; x < width; x++) {
      const any = columnHas(coloured, x, Math.round(height * 0.15), Math.round(height * 0.4))
      if (any && !inside) n++
      inside = any
    }
    return n
  }

  /**
   * Note, frame by frame, when the end of the line jumps from one level to the other: [ms since the epoch, level].
   * The levels stay for half a second: what changes sooner is the same jump again, at the edge of a pixel.
   */
  const watch = () => {
    window.jumps = []
    let [level, jumped] = [null, 0]
    const look = () => {
      requestAnimationFrame(look)
      const seen = pixels()
      if (!seen) return
      const { width, height, coloured } = seen
      let [top, bottom, last] = [height, -1, -1]
      for (let x = width - 1; x >= 0 && (last < 0 || x > last - 300); x--) {
        for (let y = 0; y < height; y++) {
          if (!coloured(x, y)) continue
          if (last < 0) last = x
          top = Math.min(top, y)
          bottom = Math.max(bottom, y)
        }
      }
      if (last < 0 || bottom - top < height / 3) return
      const [high, low] = [columnHas(coloured, last, top, top + 4), columnHas(coloured, last, bottom - 4, bottom)]
      const now = high && low ? 1 - level : high ? 1 : low ? 0 : level
      if (level === now || performance.now() - jumped < 250) return
      if (level !== null) window.jumps.push([performance.timeOrigin + (jumped = performance.now()), now])
      level = now
    }
    look()
  }

  /** What scrolls. */
  const scroller = () => {
    const scrolls = (e) => e.scrollHeight > 2 * e.clientHeight && e.clientHeight > 300 && /auto|scroll/.test(getComputedStyle(e).overflowY)
    return [...document.querySelectorAll('main, main *')].find(scrolls) ?? document.scrollingElement
  }

  /** Scroll from top to bottom, and return how long each frame took, in ms. */
  const scroll = async (seconds) => {
    const box = scroller()
    const speed = (box.scrollHeight - box.clientHeight) / seconds
    const frames = []
    const began = performance.now()
    let before = began
    while (before - began < 1000 * seconds) {
      const now = await new Promise(requestAnimationFrame)
      frames.push(now - before)
      before = now
      box.scrollTop = (speed * (now - began)) / 1000
    }
    return frames.slice(1)
  }

  /** Scroll from top to bottom in so many frames, however long they take. */
  const scrollIn = async (frames) => {
    const box = scroller()
    for (let i = 1; i <= frames; i++) {
      await new Promise(requestAnimationFrame)
      box.scrollTop = ((box.scrollHeight - box.clientHeight) * i) / frames
    }
  }

  return { arrival: arrival(), drawn, peaks, watch, scroll, scrollIn }
})()
