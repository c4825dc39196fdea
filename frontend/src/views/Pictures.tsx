// Images side by side, as large as the box allows, with their captions; earlier grids fade.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { number } from './format'
import { fading, type Series, type ViewOptions } from './series'
import { gridOf } from './grid'
import { PlotlyFigure } from './PlotlyFigure'
import { titleOf } from './plotly'
import { picturesOf, ratioOf, type Picture } from './values'

const MAX_PICTURES = 64
const TITLE = 21 // the line above the pictures of a record, in CSS pixels
const CAPTION = 18 // one line below a picture
const MIN_HEIGHT = 120 // of the pictures of one record among several

interface PicturesProps {
  series: readonly Series[]
  options: ViewOptions
  /** One large picture instead of a grid. */
  large: boolean
  version: number
}

interface Shown {
  key: string
  step: number
  label: string
  pictures: Picture[]
}

/** The latest pictures of a stream, and with frames those before them, newest first. */
function picturesIn({ id, label, records }: Series, { frames, history }: ViewOptions): Shown[] {
  const n = frames ? history + 1 : 1
  const found: Shown[] = []
  for (let i = records.values.length - 1; i >= 0 && found.length < n; i--) {
    const { step, value, index } = records.values[i]!
    const pictures = picturesOf(value)
    if (pictures.length) found.push({ key: frames ? `${id} ${index}` : String(id), step, label, pictures })
  }
  return found
}

export function Pictures({ series, options, large }: PicturesProps) {
  const [{ width, height }, setSize] = useState({ width: 0, height: 0 })
  const box = useRef<HTMLDivElement | null>(null)
  const shown = series.flatMap((one) => picturesIn(one, options))
  const none = shown.length === 0
  useLayoutEffect(() => {
    if (!box.current) return
    const sizes = new ResizeObserver(([entry]) => setSize({ width: entry!.contentRect.width, height: entry!.contentRect.height }))
    sizes.observe(box.current)
    return () => sizes.disconnect()
  }, [none])
  if (none) return <p class="chart-empty">No picture yet</p>
  // Several pictures of one each stand side by side, more below each other.
  const beside = shown.length > 1 && shown.every(({ pictures }) => pictures.length === 1)
  const all = beside ? gridOf(shown.length, width, height, ratio(shown.flatMap(({ pictures }) => pictures)), TITLE + CAPTION) : null
  const room = Math.max(MIN_HEIGHT, height / (beside ? 1 : shown.length) - TITLE - 8)
  return (
    <div class={`pictures ${large ? 'pictures-large' : ''} ${beside ? 'pictures-beside' : ''}`} tabIndex={0} role="group" aria-label="Pictures" ref={box}>
      {width > 0 &&
        shown.map(({ key, step, label, pictures }, i) => {
          const some = pictures.slice(0, MAX_PICTURES)
          const captions = some.some(({ caption }) => caption) ? CAPTION : 0
          const { columns, tile } = all ? { columns: 1, tile: all.tile } : gridOf(some.length, width, room, ratio(some), captions)
          const wide = !all && some.every((one) => 'json' in one) // a figure of Plotly fills its place
          return (
            <section key={key} class="pictures-frame" style={{ opacity: options.frames && series.length === 1 && !beside ? fading(i, shown.length) : 1 }}>
              <p class="muted">
                {series.length > 1 && `${label} · `}step {number(step, 10)}
                {pictures.length > MAX_PICTURES && ` · ${MAX_PICTURES} of ${pictures.length}`}
              </p>
              <div class="pictures-grid" style={{ gridTemplateColumns: wide ? `repeat(${some.length}, minmax(0, 1fr))` : `repeat(${columns}, ${tile}px)` }}>
                {some.map((picture, j) => (
                  <One key={j} picture={picture} n={j} height={wide ? room : null} />
                ))}
              </div>
            </section>
          )
        })}
    </div>
  )
}

/** The ratio of the widest picture: the others fit beside it. */
const ratio = (pictures: readonly Picture[]): number => Math.max(...pictures.map(ratioOf))

function One({ picture, n, height }: { picture: Picture; n: number; height: number | null }) {
  const { caption } = picture
  if ('json' in picture) return <Plotly {...picture} height={height} />
  return (
    <figure>
      {'pixels' in picture ? <Pixels {...picture} n={n} /> : <File {...picture} n={n} />}
      {caption && <figcaption title={caption}>{caption}</figcaption>}
    </figure>
  )
}

function Plotly({ json, height }: { json: string; height: number | null }) {
  const about = useMemo(() => titleOf(json), [json])
  return (
    <figure class={height === null ? 'pictures-plotly' : ''}>
      <PlotlyFigure json={json} name={about} about={about} height={height === null ? '100%' : `${height}px`} />
    </figure>
  )
}

function File({ bytes, type, caption, n }: Extract<Picture, { bytes: Uint8Array }> & { n: number }) {
  const url = useMemo(() => URL.createObjectURL(new Blob([bytes.slice()], { type })), [bytes])
  useEffect(() => () => URL.revokeObjectURL(url), [url])
  return <img src={url} alt={caption || `Image ${n}`} />
}

function Pixels({ pixels, height, width, channels, n }: Extract<Picture, { height: number }> & { n: number }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useLayoutEffect(() => {
    const ctx = canvas.current!.getContext('2d')!
    const made = ctx.createImageData(width, height)
    for (let i = 0; i < width * height; i++) {
      for (let c = 0; c < 3; c++) made.data[4 * i + c] = pixels[channels * i + (channels > 1 ? c : 0)]!
      made.data[4 * i + 3] = channels === 4 ? pixels[4 * i + 3]! : 255
    }
    ctx.putImageData(made, 0, 0)
  })
  return <canvas ref={canvas} width={width} height={height} role="img" aria-label={`Image ${n}`} />
}
