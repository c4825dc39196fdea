import { ask } from '../../data/scalars'
import type { Asked } from '../../data/copyAs'
import { tagOf } from '../../data/tags'
import type { Scalars, ScalarsRequest } from '../../data/types'
import { knownRun, labelOf } from '../../data/runs'
import { kindOfX } from './cards'
import { tell, tellError } from '../../ui/toasts'
import { extentOf } from '../../views/bounds'
import { csvOf, pngOf, saveFile, svgOf, type Table } from '../../views/export'
import type { Model } from '../../views/plot'

/** The most points that the server returns at once; longer series are fetched in halves. */
const POINTS = 100_000
/** The most points of each run in a CSV file; a message says if there were more. */
const MAX_CSV_POINTS = 2_000_000
const X_LABELS = { step: 'step', relative: 'time since the start', wall: 'time', index: 'index', number: 'x' }

export function downloadsOf(title: string, wanted: readonly ScalarsRequest[], model: () => Model | null) {
  const svg = (): string => {
    const now = model()
    if (!now) throw new Error('Nothing to draw yet')
    return svgOf(title, now.xname ?? X_LABELS[now.kind as keyof typeof X_LABELS], now, now.lines.filter(({ earlier }) => !earlier))
  }
  const safely = (save: () => Promise<void> | void) => () => void Promise.resolve().then(save).catch(tellError)
  return [
    { text: 'PNG picture', onClick: safely(async () => saveFile(`${title}.png`, await pngOf(svg()))) },
    { text: 'SVG picture', onClick: safely(() => saveFile(`${title}.svg`, svg(), 'image/svg+xml')) },
    { text: 'CSV, all points', onClick: safely(() => saveCsv(title, wanted)) },
  ]
}

/** The tags that are drawn, as queries; statistics and expressions are the page's own. */
export const askedOf = (wanted: readonly ScalarsRequest[]): Asked[] =>
  wanted.flatMap(({ run, tag }) => {
    const [known, recorded] = [knownRun(run), tagOf(run, tag)]
    return known && recorded?.type === 'scalar' ? [{ run: known, query: recorded.tag }] : []
  })

async function saveCsv(title: string, wanted: readonly ScalarsRequest[]): Promise<void> {
  const tables: Table[] = []
  let thinned = false
  for (const request of wanted) {
    for (const part of await whole(request)) {
      tables.push({ ...part, label: labelOf(request.run), id: knownRun(request.run)?.id ?? '', tag: request.tag })
      thinned ||= part.thinned
    }
  }
  const [{ x }] = wanted as [ScalarsRequest]
  saveFile(`${title}.csv`, csvOf(title, tables, kindOfX(x) ? 'step' : x), 'text/csv')
  if (thinned) tell('done', `Runs with more than ${MAX_CSV_POINTS.toLocaleString('en')} points were thinned in the file.`)
}

/** Every point of a series, in parts. */
async function whole(request: ScalarsRequest): Promise<Scalars[]> {
  const [answer] = await ask([{ ...request, points: POINTS }])
  if (typeof answer === 'string') throw new Error(answer)
  const { x, n, thinned, parts } = answer!
  const [low, high] = extentOf(parts.map(({ start, end }) => x.subarray(start, end)), false) ?? [0, 0]
  const middle = (low + high) / 2
  if (!thinned || n > MAX_CSV_POINTS || !(low < middle && middle < high)) return [answer!]
  const left = await whole({ ...request, from: low, to: middle })
  const right = await whole({ ...request, from: middle, to: high })
  // The point exactly in the middle came with both halves.
  return [...left, ...right.map((part) => after(part, middle))]
}

function after(part: Scalars, at: number): Scalars {
  const stays = Array.from(part.x.keys()).filter((i) => part.x[i]! > at)
  const cut = (column: Float64Array) => Float64Array.from(stays, (i) => column[i]!)
  const integers = new Map(stays.flatMap((i, k) => (part.integers?.has(i) ? [[k, part.integers.get(i)!]] : [])))
  return { ...part, x: cut(part.x), y: cut(part.y), wall: cut(part.wall), step: cut(part.step), integers }
}
