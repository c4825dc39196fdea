// The pictures of a run at a step: a grid with captions; each opens in full size.

import { useRef, useState } from 'preact/hooks'
import { fetchMedia, useFigureJson, useMedia, usePictures, type PictureInfo } from '../../data/media'
import type { Run } from '../../data/types'
import { at, update } from '../../state/state'
import { IconButton } from '../../ui/parts'
import { tellError } from '../../ui/toasts'
import { saveFile } from '../../views/export'
import { PLOTLY, plotlySource } from '../../views/plotly'
import { PlotlyFigure } from '../../views/PlotlyFigure'
import { Icon } from '../../ui/Icon'
import { AtStep, type AtStepProps } from './AtStep'
import { stepUntil } from './tags'

/** Up to this many pixels wide, a picture is made of pixels that one wants to see. */
const SMALL = 128
const SHOWN_MIN = 88
/** Up to this many, they are squares in full size too. */
const MAX_SQUARES = 512

export function Pictures(props: AtStepProps) {
  const { run, tag, series, steps, step } = props
  const mine = stepUntil(steps, step)
  const found = usePictures(run.key, series, mine)
  const pictures = mine === null ? [] : (found.value?.pictures ?? [])
  return (
    <AtStep {...props} problem={found.problem}>
      <div class={`media-grid ${pictures.length > 1 ? 'has-many' : ''} ${found.fresh || mine === null ? '' : 'is-stale'}`}>
        {mine !== null && found.value && pictures.map((info, i) => <Tile key={i} run={run} tag={tag} series={series} step={found.value!.step} index={i} info={info} />)}
      </div>
    </AtStep>
  )
}

interface PictureProps {
  run: Run
  tag: string
  series: string
  step: number
  index: number
  info: PictureInfo
}

const isPicture = ({ media_type }: PictureInfo): boolean => media_type.startsWith('image/')
const nameOf = ({ tag, index, info, step }: Omit<PictureProps, 'run'>): string => info.caption || `${tag}, picture ${index + 1}, step ${step}`

const HEIGHT = 450 // Plotly's own

/** A figure to zoom and hover, with what saves it as it was recorded, and as a picture. */
function Interactive({ height, full, ...props }: PictureProps & { height: string; full?: boolean }) {
  const { run, tag, step, index, info } = props
  const png = useRef<(() => Promise<Blob>) | null>(null)
  const { value, problem } = useFigureJson(run.key, tag, step, index)
  const name = nameOf(props)
  const savePng = () => (png.current ? png.current() : Promise.reject(new Error('The figure is not drawn yet'))).then((blob) => saveFile(`${run.name}-${tag}-${step}-${index}.png`, blob), tellError)
  return (
    <>
      {problem && <p class="field-problem">{problem}</p>}
      {value !== null && <PlotlyFigure json={value} name={name} about={info.caption} height={height} png={png} />}
      <figcaption>
        <span title={info.caption}>{info.caption}</span>
        <span class="media-tools">
          {!full && <IconButton icon="expand" label={`Open ${name} in full size`} onClick={() => update({ full: `${run.key}|${index}` })} />}
          {plotlySource() && <IconButton icon="image" label={`Save ${name} as PNG`} onClick={() => void savePng()} />}
          <Save {...props} />
        </span>
      </figcaption>
    </>
  )
}

function Tile(props: PictureProps) {
  const { run, info, index } = props
  if (info.media_type === PLOTLY) {
    return (
      <figure class="media-tile media-plotly">
        <Interactive {...props} height={`${info.height ?? HEIGHT}px`} />
      </figure>
    )
  }
  return (
    <figure class="media-tile">
      <button type="button" class="media-open" aria-label={`Open ${nameOf(props)} in full size`} onClick={() => update({ full: `${run.key}|${index}` })}>
        {isPicture(info) ? <Picture {...props} /> : <Page info={info} />}
      </button>
      <figcaption>
        <span title={info.caption}>{info.caption}</span>
        <Save {...props} />
      </figcaption>
    </figure>
  )
}

function Page({ info }: { info: PictureInfo }) {
  return (
    <span class="media-page">
      <Icon name="download" size={22} />
      {suffixOf(info.media_type).toUpperCase()}
    </span>
  )
}

interface Size {
  width: number
  height: number
}

/** The size of a picture: from the server, or from the file once it is loaded. */
function useSize({ width, height }: Pick<PictureInfo, 'width' | 'height'>): [Size | null, (event: { currentTarget: HTMLImageElement }) => void] {
  const [natural, setNatural] = useState<Size | null>(null)
  const declared = width !== null && height !== null ? { width, height } : natural
  return [declared, ({ currentTarget: { naturalWidth, naturalHeight } }) => setNatural({ width: naturalWidth, height: naturalHeight })]
}

/** A picture in its place; a small one keeps its pixels, and is made large enough to see. */
function Picture(props: PictureProps) {
  const { run, series, step, index, info } = props
  const { src, problem } = useMedia(run.key, series, step, index)
  const [size, onLoad] = useSize(info)
  if (problem) return <span class="field-problem">{problem}</span>
  const small = size !== null && size.width <= SMALL && info.media_type !== 'image/svg+xml'
  const scale = small ? Math.max(1, Math.ceil(SHOWN_MIN / size.width)) : 1
  const shown = size && { width: size.width * scale, height: size.height * scale }
  if (!src) return <span class="media-wait" style={shown ? { width: `${shown.width}px`, height: `${shown.height}px` } : undefined} />
  return <img src={src} alt={nameOf(props)} class={small ? 'is-pixels' : undefined} onLoad={onLoad} {...shown} />
}

const SUFFIXES: Record<string, string> = { 'image/png': 'png', 'image/jpeg': 'jpg', 'image/gif': 'gif', 'image/webp': 'webp', 'image/svg+xml': 'svg', 'application/pdf': 'pdf', [PLOTLY]: 'json' }
export const suffixOf = (mediaType: string): string => SUFFIXES[mediaType] ?? 'bin'

function Save(props: PictureProps) {
  const { run, tag, series, step, index, info } = props
  const suffix = suffixOf(info.media_type)
  const save = () => fetchMedia(run.key, series, step, index).then((blob) => saveFile(`${run.name}-${tag}-${step}-${index}.${suffix}`, blob), tellError)
  return <IconButton icon="download" label={`Download ${nameOf(props)} as ${suffix.toUpperCase()}`} onClick={() => void save()} />
}

interface FullProps extends Omit<PictureProps, 'info'> {
  pictures: readonly PictureInfo[]
  /** Each pixel a square, or smooth; null as the picture's size suggests. */
  pixels: boolean | null
  /** Pixels of the screen for one of the picture; 0 fits it in. */
  zoom: number
}

/** The open picture at the chosen size. */
export function FullPicture({ pictures, pixels, zoom, ...place }: FullProps) {
  const info = pictures[place.index]
  const { src, problem } = useMedia(place.run.key, place.series, place.step, place.index)
  const [size, onLoad] = useSize(info ?? { width: null, height: null })
  if (!info) return <p class="muted">There is no picture {place.index + 1} at this step.</p>
  if (problem) return <p class="field-problem">{problem}</p>
  if (info.media_type === PLOTLY) {
    return (
      <figure class="media-tile media-plotly media-full-box">
        <Interactive {...place} info={info} height={info.height ? `${info.height}px` : '100%'} full />
      </figure>
    )
  }
  if (!isPicture(info)) {
    return (
      <div class="media-full-file">
        <p>A {suffixOf(info.media_type).toUpperCase()} is not drawn in this page; download it to see it.</p>
        <Save {...place} info={info} />
      </div>
    )
  }
  const style = zoom === 0 ? { width: '100%', height: '100%', objectFit: 'contain' as const } : size ? { width: `${size.width * zoom}px`, height: `${size.height * zoom}px`, maxWidth: 'none' } : {}
  const squares = pixels ?? (size !== null && size.width <= MAX_SQUARES && info.media_type !== 'image/svg+xml')
  return (
    <>
      <div class="media-full-box" tabIndex={0} role="region" aria-label="Picture, to be scrolled">
        {src && <img src={src} alt={nameOf({ ...place, info })} class={squares ? 'is-pixels' : undefined} style={style} onLoad={onLoad} />}
      </div>
      <footer class="media-full-foot">
        <span>{info.caption}</span>
        <span class="muted">{size && `${size.width} × ${size.height}`}</span>
        <Save {...place} info={info} />
      </footer>
    </>
  )
}

export const openPicture = (): { run: string; index: number } | null => {
  const text = at.full.value
  const bar = text.lastIndexOf('|')
  return bar < 0 ? null : { run: text.slice(0, bar), index: Number(text.slice(bar + 1)) || 0 }
}
