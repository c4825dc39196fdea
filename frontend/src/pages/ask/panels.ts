// The panels of the page Ask, as they stand in the URL: one line a stream, `run|settings|query`. The settings of the
// first are those of the panel. An empty run is that of the line before; a pattern stands for several (`fleet.ts`).

import { STANDARD, X_KINDS, type ViewOptions } from '../../views/series'

export interface AskedStream {
  run: string
  query: string
  /** On the right axis. */
  second: boolean
}

export interface AskedPanel {
  /** The view that the reader chose instead of the server's; '' for the server's. */
  view: string
  options: ViewOptions
  /** Stays when the others are dropped. */
  pinned: boolean
  streams: AskedStream[]
}

const MAX_HISTORY = 100
const OVERS = ['ridge', 'latest', 'heat'] as const

/** A query on one line: nothing else can stand in the URL. */
export const oneLine = (query: string): string => query.replace(/\s*\n\s*/g, ' ').trim()

export const panelOf = (run: string, query: string): AskedPanel => ({ view: '', options: STANDARD, pinned: false, streams: [{ run, query: oneLine(query), second: false }] })

export function readPanel(text: string): AskedPanel | null {
  const streams: AskedStream[] = []
  let panel: Omit<AskedPanel, 'streams'> | null = null
  for (const line of text.split('\n')) {
    const [, run, words, query] = /^([^|]*)\|([^|]*)\|(.*)$/.exec(line) ?? []
    const settings = settingsOf(words ?? '')
    const of = run || streams[streams.length - 1]?.run
    if (!of || !query) continue
    panel ??= { view: settings.view, options: optionsOf(settings), pinned: 'pinned' in settings.words }
    streams.push({ run: of, query, second: 'second' in settings.words })
  }
  return panel && { ...panel, streams }
}

interface Settings {
  view: string
  words: Record<string, string>
}

/** `view,name=value,flag`: the first word is the view, other words without a value are flags. */
function settingsOf(text: string): Settings {
  const [view = '', ...rest] = text.split(',')
  return { view, words: Object.fromEntries(rest.filter(Boolean).map((word) => word.split('=', 2)).map(([name, value]) => [name!, value ?? ''])) }
}

function optionsOf({ words }: Settings): ViewOptions {
  const number = (name: string, standard: number, min: number, max: number): number => {
    const value = Number(words[name] || NaN)
    return Number.isFinite(value) ? Math.min(max, Math.max(min, value)) : standard
  }
  return {
    ...STANDARD,
    x: X_KINDS.find((kind) => kind === words.x) ?? STANDARD.x,
    over: OVERS.find((over) => over === words.over) ?? STANDARD.over,
    smooth: number('smooth', STANDARD.smooth, 0, 0.999),
    history: Math.round(number('history', STANDARD.history, 0, MAX_HISTORY)),
    last: Math.round(number('last', STANDARD.last, 0, 1e6)),
    xlog: 'xlog' in words,
    ylog: 'ylog' in words,
    frames: 'frames' in words,
  }
}

export function writePanel({ view, options, pinned, streams }: AskedPanel): string {
  const words = [view]
  for (const [name, value] of Object.entries(options)) {
    if (value === true) words.push(name)
    else if (value !== false && value !== STANDARD[name as keyof ViewOptions]) words.push(`${name}=${value}`)
  }
  if (pinned) words.push('pinned')
  return streams
    .map(({ run, query, second }, i) => {
      const own = i === 0 ? [...words, ...(second ? ['second'] : [])] : ['', ...(second ? ['second'] : [])]
      return `${i > 0 && run === streams[i - 1]!.run ? '' : run}|${own.join(',').replace(/,$/, '')}|${query}`
    })
    .join('\n')
}
