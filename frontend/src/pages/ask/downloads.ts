// Downloads of a panel: a picture, the visible numbers, or all records in the page.

import { knownRun, labelOf } from '../../data/runs'
import type { Stream } from '../../data/stream'
import { tell, tellError } from '../../ui/toasts'
import { pngOf, saveFile, svgOf } from '../../views/export'
import type { Model } from '../../views/plot'
import { csvOf } from '../../views/recordsCsv'

interface Saved {
  title: string
  streams: readonly Stream[]
  model: () => Model | null
  root: () => HTMLElement | null
}

export function downloadsOf({ title, streams, model, root }: Saved) {
  const safely = (save: () => Promise<void> | void) => () => void Promise.resolve().then(save).catch(tellError)
  const svg = () => {
    const now = model()
    return now && root()?.querySelector('.chart') ? svgOf(title, '', now) : null
  }
  const tables = () => streams.map(({ run, query, records }) => ({ name: query, records, run: labelOf(run), id: knownRun(run)?.id }))
  const savePng = async () => {
    const drawn = svg()
    if (drawn) return saveFile(`${title}.png`, await pngOf(drawn))
    const canvas = root()?.querySelector('canvas')
    if (!canvas) return tell('error', 'This view is not a picture: save its values instead.')
    const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve))
    if (blob) saveFile(`${title}.png`, blob)
  }
  const saveSvg = () => {
    const drawn = svg()
    if (drawn) saveFile(`${title}.svg`, drawn, 'image/svg+xml')
    else tell('error', 'Only lines can be saved as SVG: save a PNG instead.')
  }
  return [
    { text: 'PNG picture', onClick: safely(savePng) },
    { text: 'SVG picture', onClick: safely(saveSvg) },
    { text: 'CSV of what is here', onClick: safely(() => saveFile(`${title}.csv`, csvOf(tables()), 'text/csv')) },
  ]
}
