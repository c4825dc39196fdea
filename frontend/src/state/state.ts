// The state of the page, in the URL's fragment: a link shows the same to anyone who has the token.

import { computed, signal, type ReadonlySignal } from '@preact/signals'
import { flag, lists, maybeNumber, maybeTexts, number, numbers, oneOf, readFragment, span, spans, text, texts, writeFragment, type StateOf } from './codec'

export const PAGES = ['charts', 'tensors', 'media', 'runs', 'control', 'run'] as const
export type Page = (typeof PAGES)[number]

/** Pages as earlier links name them. */
const EARLIER: Record<string, Page> = { ask: 'charts', commands: 'control' }

/** The order of runs before one is chosen. */
export const NEWEST = '-started'

export const shape = {
  /** The project whose runs are shown; empty for all. */
  project: text(),
  // Runs: the filter, the visible ones, and the open one.
  filter: text(),
  /** Keys with a bar between them; each with a `!` before it: all that differ but those. */
  group: text(),
  runs: maybeTexts(),
  hide: texts(),
  pin: texts(),
  /** Keys with a bar between them, each with a `-` before it if it falls. */
  sort: text(NEWEST),
  columns: maybeTexts(),
  /** Columns that stay in sight beside the name. */
  stuck: texts(),
  /** Widths of columns in pixels. */
  widths: numbers(),
  /** Whether groups are shown without their runs. */
  fold: flag(),
  run: text(),
  color: numbers(),
  /** The columns by whose values lines have their colours and dashes, and by which charts are divided; empty for none. */
  colorby: text(),
  dashby: text(),
  facet: text(),
  compare: flag(),
  /** What the comparison shows of series. */
  of: oneOf('last', 'min', 'max', 'mean', 'first'),
  /** Whether the views over the runs are shown; the columns of the scatter, of the colours and of the parallel axes; which axes are logarithmic. */
  views: flag(),
  across: text(),
  up: text(),
  tint: text(),
  axes: maybeTexts(),
  logs: texts(),
  best: oneOf('auto', 'min', 'max'),
  // Charts: every chart obeys these.
  tags: text(),
  /** `step`, `relative`, `wall`, or the name of a step track or a series. */
  x: text('step'),
  smooth: number(0, 0, 0.999),
  /** Whether points are weighed by their distance along x, as W&B does, or each the same, as TensorBoard does. */
  smoothby: oneOf('x', 'point'),
  ylog: flag(),
  xlog: flag(),
  clip: flag(),
  band: oneOf('std', 'range', 'none'),
  /** Whether lines are drawn minus that of the baseline. */
  less: flag(),
  zoom: span(),
  // Charts: single panels.
  yzoom: spans(),
  /** Of charts over another x than that of the page. */
  xzoom: spans(),
  /** What single charts have of their own: see `pages/charts/cards.ts`. */
  cards: lists(),
  /** The order of sections, and of charts in a section: its name, then theirs. */
  sections: texts(),
  order: lists(),
  panel: texts(),
  /** Charts of the reader's own: a name, and the tags that share it. */
  own: lists(),
  shut: texts(),
  focus: text(),
  /** What the drawer shows: a time, in seconds since 1970, and the run: `1700000000.5 KEY`. */
  moment: text(),
  size: oneOf('m', 's', 'l'),
  // Tensors: which part of which tensor, at which step (null: the last), and how it is shown.
  from: text(),
  tensor: text(),
  find: text(),
  step: maybeNumber(),
  slice: text(),
  /** The element that is marked, as `3,4`. */
  cell: text(),
  /** The tensor to compare with: `run@when`, see `pages/tensors/against.ts`; its tag, if that is another; and how. */
  minus: text(),
  versus: text(),
  measure: oneOf('difference', 'relative', 'close'),
  rtol: number(1e-5, 0, 1e300),
  atol: number(1e-8, 0, 1e300),
  as: oneOf('auto', 'overview', 'table', 'histograms', 'statistics'),
  /** What is shown beside the tensor: those of other runs, and those whose names match. */
  otherruns: flag(),
  /** Whether their histograms at the step share a chart. */
  together: flag(),
  beside: text(),
  /** How the overview is sorted: the name of a statistic, with a `-` before it if it falls; empty: by module. */
  rank: text(),
  curve: oneOf('norm', 'mean', 'std', 'min', 'max', 'n_zero', 'n_nan'),
  notation: oneOf('auto', 'fixed', 'scientific'),
  digits: number(4, 0, 17),
  shade: oneOf('most', 'max', 'none'),
  heat: flag(),
  ridge: oneOf('offset', 'overlay', 'heat', 'bands'),
  symlog: flag(),
  logcounts: flag(),
  /** Whether bins also span outliers that squeeze all other values. */
  outliers: flag(),
  /** What the histograms of steps are apart by. */
  along: oneOf('step', 'even', 'relative', 'wall'),
  /** 0: as many as fit the number of values. */
  bins: number(0, 0, 512),
  values: span(),
  steps: span(),
  // Images, figures and texts: the tag, the step, and the picture in full size, as `run|number`.
  media: text(),
  when: maybeNumber(),
  full: text(),
  words: text(),
  /** The column by which tables are sorted, with a `-` before it if it falls. */
  rowsort: text(),
  /** Whether texts are drawn as Markdown; by default those of TensorBoard, which does so. */
  markdown: oneOf('auto', 'on', 'off'),
  // What is asked: the run or a pattern of names, and the cards, see `pages/ask/panels.ts`.
  asked: text(),
  ask: texts(),
  // Control: the control or action whose effect is shown, and on what, as a card of what is asked.
  knob: text(),
  moves: lists(),
}

export type State = StateOf<typeof shape>

export const page = signal<Page>('charts')
export const state = signal<State>(readFragment(shape, '').state)

type Fields = { [K in keyof State]: ReadonlySignal<State[K]> }

/** One signal for each field, so that a part of the page is redrawn only when its field changes. */
export const at = Object.fromEntries(
  Object.keys(shape).map((name) => {
    let last: unknown
    let written = ''
    return [
      name,
      computed(() => {
        const value = state.value[name as keyof State]
        const now = JSON.stringify(value)
        if (now !== written) [last, written] = [value, now]
        return last
      }),
    ]
  }),
) as Fields

/** What the browser's Back undoes one by one: what narrows the view, and what is easily done by mistake. */
const UNDONE_BY_BACK = ['filter', 'group', 'colorby', 'dashby', 'facet', 'runs', 'hide', 'tags', 'zoom', 'yzoom', 'compare', 'columns', 'sort'] as const
/** Changes of one field in a row are one, such as the letters of a filter. */
const ROW_MS = 1_500
let changed = { field: '', at_ms: 0 }

/** Whether a patch begins a change that Back undoes. */
function isUndoable(before: State, patch: Partial<State>): boolean {
  const field = UNDONE_BY_BACK.find((name) => name in patch && JSON.stringify(patch[name]) !== JSON.stringify(before[name]))
  if (!field) return false
  const goesOn = field === changed.field && performance.now() - changed.at_ms < ROW_MS
  changed = { field, at_ms: performance.now() }
  return !goesOn
}

/** Change the state; what a user would call another place, or undo, gets an entry in the browser's history. */
export function update(patch: Partial<State>, options: { page?: Page } = {}): void {
  const before = state.peek()
  const next = { ...before, ...patch }
  const target = options.page ?? page.peek()
  const fragment = writeFragment(shape, target, next)
  const moved = target !== page.peek() || isUndoable(before, patch)
  state.value = next
  page.value = target
  if (moved) {
    writeAddress()
    history.pushState(null, '', fragment)
  } else {
    pending = fragment
    timer ||= window.setTimeout(writeAddress, ADDRESS_MS)
  }
}

// Browsers refuse more than a hundred new addresses in half a minute: a slider that is dragged writes fewer.
const ADDRESS_MS = 350
/** A reload goes to the address that was there when it began, so what the last one lacks is kept for the next page. */
const UNWRITTEN = 'sightglass-address'
let pending: string | null = null
let timer = 0

/** Bring the address bar up to what the page shows. */
export function writeAddress(): void {
  clearTimeout(timer)
  timer = 0
  if (pending !== null && pending !== location.hash) history.replaceState(null, '', pending)
  pending = null
}

function keepUnwritten(): void {
  if (pending !== null) sessionStorage.setItem(UNWRITTEN, JSON.stringify([location.hash, pending]))
  writeAddress()
}

/** Take up an address that the page left no time to write. */
function takeUnwritten(): void {
  const [before, after] = JSON.parse(sessionStorage.getItem(UNWRITTEN) ?? '[]') as string[]
  sessionStorage.removeItem(UNWRITTEN)
  if (after !== undefined && before === location.hash) history.replaceState(null, '', after)
}

export function toggled(list: string[], item: string): string[] {
  return list.includes(item) ? list.filter((one) => one !== item) : [...list, item]
}

function readLocation(): void {
  pending = null
  const read = readFragment(shape, location.hash)
  state.value = read.state
  page.value = PAGES.find((known) => known === read.page) ?? EARLIER[read.page] ?? 'charts'
}

export function followLocation(): void {
  takeUnwritten()
  readLocation()
  addEventListener('popstate', readLocation)
  addEventListener('hashchange', readLocation)
  addEventListener('pagehide', keepUnwritten)
}

/** The whole address of this page with some changes, for others. */
export const linkTo = (change: Partial<State>): string => new URL(writeFragment(shape, page.peek(), { ...state.peek(), ...change }), location.href).href

/** The address of another page with the same state, for real links. */
export function hrefOf(target: Page): string {
  return writeFragment(shape, target, state.value)
}
