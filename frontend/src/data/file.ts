// A page that was saved as one file: it carries the answers that a server gave when it was made, and asks nobody.

import { decode } from '@msgpack/msgpack'
import { drawPlotlyWith } from '../views/plotly'
import { rowsOf, type Table } from './rows'

/** What the file says about itself. */
export interface About {
  version: string
  address: string
  /** When it was made, in seconds since the Unix epoch. */
  made: number
  folders: string[]
  n_runs: number
  n_runs_left_out: number
  n_series: number
  n_thinned: number
  media_left_out: Record<string, number>
  n_tables_cut: number
  pages: string[]
}

type Query = Record<string, string | number | undefined>
type Columns = { names: string[]; keys: string[]; values: unknown[][]; tags: string[]; statistics: string[]; without?: string[] }

interface Content {
  about: About
  answers: [path: string, query: Query, reply: unknown][]
  series: [run: string, tag: string, x: string, reply: Record<string, unknown>][]
  table: Columns
  media: [run: string, tag: string, step: number, index: number, type: string, bytes: Uint8Array<ArrayBuffer>][]
  blobs: Uint8Array[]
  frame: string
}

const ID = 'sightglass-file'
const COLUMNS = ['x', 'y', 'wall', 'step', 'mean']

/** What this page was saved with; null where a server serves it. */
export let file: About | null = null

let table: Columns
const replies = new Map<string, unknown>()
const series = new Map<string, Record<string, unknown>>()
const media = new Map<string, Blob>()

const nameOf = (path: string, query: Query): string => JSON.stringify([path, ...Object.entries(query).filter(([, value]) => value !== undefined).sort()])

/** Read what the page was saved with, if it was. */
export async function openFile(): Promise<void> {
  const element = document.getElementById(ID)
  if (!element) return
  const packed = Uint8Array.from(atob(element.textContent!), (char) => char.charCodeAt(0))
  element.remove()
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))
  const content = decode(new Uint8Array(await new Response(plain).arrayBuffer())) as Content
  for (const [path, query, reply] of content.answers) replies.set(nameOf(path, query), reply)
  for (const [run, tag, x, reply] of content.series) {
    for (const name of COLUMNS) if (typeof reply[name] === 'number') reply[name] = content.blobs[reply[name]]
    series.set(JSON.stringify([run, tag, x]), reply)
  }
  for (const [run, tag, step, index, type, bytes] of content.media) media.set(JSON.stringify([run, tag, step, index]), new Blob([bytes], { type }))
  table = content.table
  file = content.about
  if (content.frame) drawPlotlyWith({ frame: { srcdoc: content.frame }, script: async () => '' })
  replies.set(nameOf('session', {}), { role: 'viewer', name: '', version: file.version, directories: file.folders })
  if (!location.hash) history.replaceState(null, '', file.address)
}

/** The bytes of a picture or a sound, or any other reply to a GET; undefined where the file has none. */
export function replyTo(path: string, query: Query = {}): unknown {
  const [, run, what] = /^runs\/(.+)\/(media|rows)$/.exec(path) ?? []
  const { tag, step, index } = query
  if (what === 'media') return media.get(JSON.stringify([decodeURIComponent(run!), tag, step, index]))
  if (what !== 'rows') return replies.get(nameOf(decodeURIComponent(path), query))
  const all = replies.get(nameOf(decodeURIComponent(path), { tag, step })) as Table | undefined
  return all && rowsOf(all, query)
}

interface Asked {
  requests?: { run: string; tag: string; x: string }[]
  columns?: string[]
}

/** The reply to a POST: series in full, whatever part of them is asked for, and columns of the table. */
export function replyToPost(path: string, { requests, columns }: Asked): unknown {
  if (path === 'scalars') return requests!.map(({ run, tag, x }) => series.get(JSON.stringify([run, tag, x])) ?? { error: 'This file does not have it' })
  if (path !== 'columns') return undefined
  const { names, keys, values, tags, statistics, without = [] } = table
  return { keys, tags, statistics, without, n_pending: 0, values: columns!.map((name) => values[names.indexOf(name)] ?? keys.map(() => null)) }
}
