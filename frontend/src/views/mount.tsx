// Views for notebooks and other embedders, in a shadow root: styles stay inside, and nothing is fetched.

import { signal } from '@preact/signals'
import { render } from 'preact'
import { boxIn } from './box'
import type { Cursor } from './Chart'
import { copyPicture, copyText } from './clipboard'
import { columnOf } from './columns'
import { pngOf, saveFile } from './export'
import { forgetOldTrees } from './forget'
import { Key } from './Key'
import { Names } from './Names'
import { paced } from './pace'
import { styleOf, type LineStyle } from './palette'
import type { Model } from './plot'
import { snapshot, svgText, type Printed } from './print'
import { MAX_POINTS, Records, type Batch } from './records'
import { csvOf } from './recordsCsv'
import { Root } from './root'
import { STANDARD, type Series, type ViewOptions } from './series'
import { watchSurroundings } from './surroundings'
import { Toolbar } from './Toolbar'
import { View } from './View'
import { showInvisible, visible } from './visible'

export type Theme = 'light' | 'dark' | 'auto'

/** Records of one stream: columns, with numbers as `y` or anything as `values`. Columns may be arrays, or their bytes. */
export interface Pushed {
  step: unknown
  wall?: unknown
  /** Without it, records are counted as they come. */
  index?: unknown
  /** What is missing between the records was thinned, in buckets of 2**bits of them. */
  bits?: number
  y?: unknown
  values?: unknown[]
  /** Of thinned numbers, the area under the line of all records since the one before, over the index. */
  area?: unknown
  /** The numbers of the first records of runs that began again. */
  restarts?: readonly number[]
}

/** How one stream is drawn. */
export interface StreamStyle {
  label?: string
  color?: string
  dash?: number[]
  /** On the right axis. */
  second?: boolean
  /** When its run began, in seconds, for times relative to it. */
  started?: number | null
}

type Given<T> = { [K in keyof T]?: T[K] | null }

export interface MountOptions extends Given<ViewOptions> {
  view?: string
  /** Stands above the view. */
  title?: string
  /** Names of the streams, in their order; later ones are named as they come. */
  names?: string[]
  /** Its label, if that is not its name. */
  labels?: Record<string, string>
  colors?: string[]
  theme?: Theme
  /** When the runs began, in seconds, for times relative to it. */
  started?: number | null
  height?: number | string
  /** How many points of a stream are held before they are thinned. */
  max_points?: number
  /** Whether there are tools for saving, copying and options; by default there are. */
  tools?: boolean
  /** Called when the user changed options. */
  onOptions?: (change: Partial<ViewOptions>) => void
  /** Called with the model of a line chart, or null. */
  onModel?: (model: Model | null) => void
}

export interface Mounted {
  /** Add records to a stream: the first one, or the one of this name. */
  push: (records: Pushed, stream?: string) => void
  setView: (view: string, options?: Given<ViewOptions>) => void
  /** Change some options; null restores the default. */
  setOptions: (options: Given<ViewOptions>) => void
  setTheme: (theme: Theme) => void
  setTitle: (title: string) => void
  /** How a stream is drawn, whether it has records yet or not. */
  setStream: (stream: string, style: StreamStyle) => void
  /** Small texts below the view. */
  setNotices: (notices: string[]) => void
  /** Forget the records of a stream, or of all, as before they are sent again. */
  reset: (stream?: string) => void
  /** Show no more of a stream. */
  remove: (stream: string) => void
  /** Show everything that was zoomed away. */
  home: () => void
  png: () => Promise<Blob>
  /** Null where the view is made of other things than lines, areas and text. */
  svg: () => string | null
  csv: () => string
  destroy: () => void
}

interface Stream {
  records: Records
  style: StreamStyle
}

/** Views that name each stream where they show it. */
const NAMED = ['images', 'picture', 'sounds', 'sheet', 'heatmap', 'table']

export function mountWith(css: string, element: HTMLElement, given: MountOptions = {}): Mounted {
  forgetOldTrees()
  showInvisible()
  const host = element.appendChild(document.createElement('div'))
  const box = boxIn(host, css, 'sightglass-view')
  host.style.height = typeof given.height === 'number' ? `${given.height}px` : (given.height ?? '320px')
  const [cursor, model] = [signal<Cursor | null>(null), signal<Model | null>(null)]
  const streams = new Map<string, Stream>()
  let { view = '', theme = 'auto', title = '' } = given
  let options: ViewOptions = changed(STANDARD, given)
  let notices: string[] = []
  let series: Series[] = []
  let [version, home, over] = [0, 0, false]

  const streamAt = (name: string): Stream => {
    let found = streams.get(name)
    if (!found) {
      const color = given.colors?.[streams.size]
      const plain = styleOf(streams.size, Math.floor(streams.size / 8))
      const style = color ? { color, dash: [] } : plain
      streams.set(name, (found = { records: new Records(given.max_points ?? MAX_POINTS), style: { ...style, label: given.labels?.[name] ?? name } }))
      seriesAnew()
    }
    return found
  }
  const seriesAnew = () => {
    series = [...streams].map(([id, { records, style }]) => {
      const { label = id, color, dash = [], second = false, started = given.started ?? null } = style
      return { id, label: visible(label), style: { color: color!, dash } satisfies LineStyle, records, started, second }
    })
  }
  const printed = (): Printed => ({ box, title: title || series.map(({ label }) => label).join(', '), series, model: view === 'line' ? model.peek() : null })
  const svg = () => svgText(printed())
  const png = () => (view === 'line' && model.peek() ? pngOf(svg()!) : snapshot(box, css, host.dataset.theme!))
  const csv = () => csvOf(series.map(({ label, records }) => ({ name: label, records })))
  const setOptions = (change: Given<ViewOptions>) => {
    options = changed(options, change)
    later()
  }
  const goHome = () => {
    home++
    later()
  }
  const tools = () => (
    <Toolbar
      view={view}
      options={options}
      hasSvg={['line', 'xy', 'scatter', 'annotated', 'line3d', 'histogram'].includes(view)}
      onOptions={(change) => {
        setOptions(change)
        given.onOptions?.(change)
      }}
      onHome={goHome}
      onSave={async (kind) => {
        const name = printed().title || 'view'
        if (kind === 'png') saveFile(`${name}.png`, await png())
        else if (kind === 'csv') saveFile(`${name}.csv`, csv(), 'text/csv')
        else saveFile(`${name}.svg`, svg() ?? '', 'image/svg+xml')
      }}
      onCopy={(kind) => (kind === 'png' ? copyPicture(png()) : copyText(csv()))}
    />
  )
  const redraw = paced(() => {
    // An element outside of the page is drawn when it comes back.
    if (!host.isConnected) return
    const dark = theme === 'dark' || (theme === 'auto' && surroundings.isDark())
    host.dataset.theme = dark ? 'dark' : 'light'
    const onModel = (next: Model | null) => {
      model.value = next
      given.onModel?.(next)
    }
    if (view !== 'line' || series.every(({ records }) => records.n === 0)) model.value = null
    const said = title || series.map(({ label }) => label).join(', ')
    const shown = view ? <View id="view" title={said} view={view} series={series} options={options} version={version} dark={dark} cursor={cursor} home={home} onModel={onModel} /> : <p class="chart-empty">No records yet</p>
    render(
      <Root.Provider value={host}>
        {title && <h3 class="view-title" title={title}>{title}</h3>}
        <div class="view-body">{shown}</div>
        {view === 'line' ? <Lines model={model} frames={options.frames} /> : !NAMED.includes(view) && <Names series={series} />}
        {notices.length > 0 && <Notices notices={notices} />}
        {view && given.tools !== false && tools()}
      </Root.Provider>,
      box,
    )
  })
  const later = () => {
    version++
    if (!over) redraw.ask()
  }
  const surroundings = watchSurroundings(later)
  // The box may come into the page after this, leave it, and come back.
  let [width, height] = [0, 0]
  const sizes = new ResizeObserver(([entry]) => {
    const { width: w, height: h } = entry!.contentRect
    if (w > 0 && h > 0 && !(width > 0 && height > 0)) later()
    ;[width, height] = [w, h]
  })
  sizes.observe(host)
  for (const name of given.names ?? []) streamAt(name)
  later()

  return {
    push(pushed, stream = [...streams.keys()][0] ?? 'stream') {
      const { records } = streamAt(stream)
      records.push(batchOf(pushed, records.n))
      later()
    },
    setView(next, change = {}) {
      view = next
      setOptions(change)
    },
    setOptions,
    setTheme(next) {
      theme = next
      later()
    },
    setTitle(next) {
      title = next
      later()
    },
    setStream(stream, style) {
      const known = streamAt(stream).style
      const defined = Object.entries(style).filter(([, value]) => value !== undefined)
      streams.get(stream)!.style = { ...known, ...Object.fromEntries(defined) }
      seriesAnew()
      later()
    },
    setNotices(next) {
      notices = next.map(String)
      later()
    },
    reset(stream) {
      for (const [name, one] of streams) if (stream === undefined || stream === name) one.records = new Records(given.max_points ?? MAX_POINTS)
      seriesAnew()
      later()
    },
    remove(stream) {
      streams.delete(stream)
      seriesAnew()
      later()
    },
    home: goHome,
    png,
    svg,
    csv,
    destroy() {
      over = true
      redraw.stop()
      surroundings.close()
      sizes.disconnect()
      render(null, box)
      host.remove()
    },
  }
}

function Lines({ model, frames }: { model: { value: Model | null }; frames: boolean }) {
  return model.value && <Key lines={model.value.lines} frames={frames} />
}

function Notices({ notices }: { notices: readonly string[] }) {
  return (
    <ul class="view-notices" role="status">
      {notices.map((notice, i) => (
        <li key={i}>{notice}</li>
      ))}
    </ul>
  )
}

/** The columns of what was pushed, which have to be of one length. */
export function batchOf({ step: steps, wall: walls, index: indices, bits, y: ys, values, area, restarts }: Pushed, n_before: number): Batch {
  const step = columnOf(steps)
  const wall = walls === undefined || walls === null ? step : columnOf(walls)
  const index = indices === undefined || indices === null ? step.map((_, i) => n_before + i) : columnOf(indices, true)
  const what = values ? { values } : { y: columnOf(ys) }
  const n = what.values?.length ?? what.y!.length
  if (step.length !== n || wall.length !== n || index.length !== n) {
    throw new TypeError(`Expected columns of one length, got step: ${step.length}, wall: ${wall.length}, index: ${index.length}, ${values ? 'values' : 'y'}: ${n}`)
  }
  return { step, wall, index, ...(bits && { bits }), ...what, ...(area !== undefined && area !== null && { area: columnOf(area) }), ...(restarts && { restarts }) }
}

/** Options with some changed; null restores the default, unknown options are ignored. */
export function changed(options: ViewOptions, change: Given<ViewOptions>): ViewOptions {
  const defined = Object.entries(change).filter(([name, value]) => name in STANDARD && value !== undefined)
  return { ...options, ...Object.fromEntries(defined.map(([name, value]) => [name, value ?? STANDARD[name as keyof ViewOptions]])) }
}
