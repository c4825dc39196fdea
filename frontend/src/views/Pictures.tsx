// Images side by side, with their captions; earlier frames fade.

import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import { number } from './format'
import { fading, type Series, type ViewOptions } from './series'
import { picturesOf, type Picture } from './values'

const MAX_PICTURES = 64

interface PicturesProps {
  series: readonly Series[]
  options: ViewOptions
  /** One large picture instead of a grid. */
  large: boolean
  version: number
}

export function Pictures({ series, options, large }: PicturesProps) {
  const shown = series.flatMap(({ id, label, records }) => {
    const frames = records.values.flatMap(({ step, value, index }) => {
      const pictures = picturesOf(value)
      return pictures.length ? [{ key: `${id} ${index}`, step, label, pictures }] : []
    })
    return frames.slice(options.frames ? -1 - options.history : -1).reverse()
  })
  if (!shown.length) return <p class="chart-empty">No picture yet</p>
  return (
    <div class={large ? 'pictures pictures-large' : 'pictures'} tabIndex={0} role="group" aria-label="Pictures">
      {shown.map(({ key, step, label, pictures }, i) => (
        <section key={key} class="pictures-frame" style={{ opacity: options.frames && series.length === 1 ? fading(i, shown.length) : 1 }}>
          <p class="muted">
            {series.length > 1 && `${label} · `}step {number(step, 10)}
            {pictures.length > MAX_PICTURES && ` · ${MAX_PICTURES} of ${pictures.length}`}
          </p>
          <div class="pictures-grid">
            {pictures.slice(0, MAX_PICTURES).map((picture, j) => (
              <One key={j} picture={picture} n={j} />
            ))}
          </div>
        </section>
      ))}
    </div>
  )
}

function One({ picture, n }: { picture: Picture; n: number }) {
  const { caption } = picture
  return (
    <figure>
      {'pixels' in picture ? <Pixels {...picture} n={n} /> : <File {...picture} n={n} />}
      {caption && <figcaption>{caption}</figcaption>}
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
