// Notes what canvases are drawn on with, so that `factsOf(element)` can say what an element shows: words with their
// colours, and for each colour how many strokes and areas there are, of how many points, from where to where, in shares
// of the canvas. To be loaded before the page.
(() => {
  const noted = new WeakMap()
  const outlines = new WeakMap()
  const images = new WeakMap()
  const of = (canvas) => noted.get(canvas) ?? (noted.set(canvas, new Map()), noted.get(canvas))
  const outlineOf = (path) => outlines.get(path) ?? (outlines.set(path, []), outlines.get(path))
  const forget = (canvas) => noted.delete(canvas)
  const wrap = (type, name, before) => {
    const method = type.prototype[name]
    if (!method) return
    type.prototype[name] = function (...args) {
      before.call(this, ...args)
      return method.apply(this, args)
    }
  }
  for (const type of [CanvasRenderingContext2D, Path2D]) {
    const at = (path) => outlineOf(path)
    wrap(type, 'moveTo', function (x, y) { at(this).push([x, y]) })
    wrap(type, 'lineTo', function (x, y) { at(this).push([x, y]) })
    wrap(type, 'bezierCurveTo', function (a, b, c, d, x, y) { at(this).push([x, y]) })
    wrap(type, 'rect', function (x, y, w, h) { at(this).push([x, y], [x + w, y + h]) })
    wrap(type, 'roundRect', function (x, y, w, h) { at(this).push([x, y], [x + w, y + h]) })
    wrap(type, 'arc', function (x, y, r) { at(this).push([x - r, y - r], [x + r, y + r]) })
  }
  const Ctx = CanvasRenderingContext2D
  wrap(Ctx, 'beginPath', function () { outlines.set(this, []) })
  const note = (ctx, kind, look, points) => {
    const { width, height } = ctx.canvas
    const m = ctx.getTransform()
    const all = of(ctx.canvas)
    const key = `${kind} ${look}`
    const one = all.get(key) ?? { n: 0, points: 0, x: [Infinity, -Infinity], y: [Infinity, -Infinity] }
    all.set(key, one)
    one.n++
    one.points += points.length
    for (const [a, b] of points) {
      const [x, y] = [(m.a * a + m.c * b + m.e) / width, 1 - (m.b * a + m.d * b + m.f) / height]
      if (Number.isFinite(x) && Number.isFinite(y)) {
        one.x = [Math.min(one.x[0], x), Math.max(one.x[1], x)]
        one.y = [Math.min(one.y[0], y), Math.max(one.y[1], y)]
      }
    }
  }
  const color = (style) => {
    if (typeof style !== 'string') return 'gradient'
    const parts = /^rgba?\(([^)]*)\)$/.exec(style)?.[1].split(/[ ,/]+/).filter(Boolean).map(Number)
    if (!parts) return style
    const [red, green, blue, alpha = 1] = parts
    const bytes = [red, green, blue, ...(alpha < 1 ? [255 * alpha] : [])]
    return `#${bytes.map((byte) => Math.round(byte).toString(16).padStart(2, '0')).join('')}`
  }
  wrap(Ctx, 'stroke', function (path) {
    const dash = this.getLineDash().length ? ' dashed' : ''
    const points = path ? outlineOf(path) : outlineOf(this)
    if (points.length > 0) note(this, 'stroke', `${color(this.strokeStyle)}${dash}`, points)
  })
  wrap(Ctx, 'fill', function (path) {
    const points = path instanceof Path2D ? outlineOf(path) : outlineOf(this)
    if (points.length > 0) note(this, 'area', color(this.fillStyle), points)
  })
  const forgetUnder = (ctx, w, h) => {
    const { a, d } = ctx.getTransform()
    if (w * a >= ctx.canvas.width - 1 && h * d >= ctx.canvas.height - 1) forget(ctx.canvas)
  }
  wrap(Ctx, 'fillRect', function (x, y, w, h) {
    forgetUnder(this, w, h)
    note(this, 'area', color(this.fillStyle), [[x, y], [x + w, y + h]])
  })
  wrap(Ctx, 'strokeRect', function (x, y, w, h) { note(this, 'stroke', color(this.strokeStyle), [[x, y], [x + w, y + h]]) })
  wrap(Ctx, 'fillText', function (text) { if (text.trim()) note(this, 'text', `${color(this.fillStyle)} ${text}`, []) })
  wrap(Ctx, 'putImageData', function ({ data, width, height }) {
    const sums = [0, 0, 0]
    for (let i = 0; i < data.length; i++) if (i % 4 < 3) sums[i % 4] += data[i]
    const [red, green, blue] = sums.map((sum) => Math.round((4 * sum) / data.length / 2.55))
    forget(this.canvas)
    of(this.canvas).set(`image ${width} x ${height}, on average ${red} % red, ${green} % green, ${blue} % blue`, { n: 1, points: 0 })
  })
  wrap(Ctx, 'drawImage', function (image, ...args) {
    for (const key of noted.get(image)?.keys() ?? []) of(this.canvas).set(key, noted.get(image).get(key))
    if (!noted.has(image)) note(this, 'image', `${image.naturalWidth ?? image.width} x ${image.naturalHeight ?? image.height}`, [])
  })
  wrap(Ctx, 'clearRect', function (x, y, w, h) { forgetUnder(this, w, h) })
  for (const side of ['width', 'height']) {
    const { get, set } = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, side)
    Object.defineProperty(HTMLCanvasElement.prototype, side, { get, set(value) { forget(this); set.call(this, value) } })
  }

  const round = (share) => String(Math.round(share * 100))
  const range = ([low, high]) => `${round(low)} to ${round(high)}`
  function* factsOfCanvas(canvas) {
    const words = new Map()
    for (const [key, { n, points, x, y }] of noted.get(canvas) ?? []) {
      const [, ink, text] = /^text (\S+) (.*)$/s.exec(key) ?? []
      if (ink) words.set(ink, [...(words.get(ink) ?? []), ...Array(n).fill(text)])
      else if (!points) yield n > 1 ? `${key} (${n} times)` : key
      else yield `${n} x ${key}: ${points} points, x ${range(x)} %, y ${range(y)} %`
    }
    for (const [ink, texts] of words) yield `text ${ink} ${texts.join(' | ')}`
  }
  function* walk(node) {
    if (node instanceof Text) {
      const text = node.data.trim()
      if (text) yield `text ${color(getComputedStyle(node.parentElement).color)} ${text}`
      return
    }
    if (node instanceof Element) {
      if (!node.checkVisibility() || node.matches('style, script, button, select, [role=toolbar]')) return
      if (node instanceof HTMLCanvasElement) yield* factsOfCanvas(node)
      if (node instanceof HTMLImageElement) yield `picture ${node.naturalWidth} x ${node.naturalHeight} ${node.alt}`
      if (node.matches('line, path, rect, polyline, polygon, circle')) {
        const { stroke, fill } = getComputedStyle(node)
        yield `mark ${color(stroke)} ${color(fill)}`
        return
      }
      if (node.matches('input')) yield `input ${node.type} ${node.value}`
      const ground = color(getComputedStyle(node).backgroundColor)
      if (node.style.width.endsWith('%') && ground !== '#00000000') yield `bar ${ground} ${node.style.width}`
      if (node.shadowRoot) for (const child of node.shadowRoot.childNodes) yield* walk(child)
    }
    for (const child of node.childNodes) yield* walk(child)
  }
  window.factsOf = (element) => {
    const counts = new Map()
    for (const fact of walk(element)) counts.set(fact, (counts.get(fact) ?? 0) + 1)
    return [...counts].map(([fact, n]) => (n > 1 ? `${fact} (${n} times)` : fact))
  }
})()
