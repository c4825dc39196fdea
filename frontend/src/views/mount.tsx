// Views in a box of their own, for notebooks and whoever else embeds them: styles are shut in, nothing is asked for.

import { render } from 'preact'
import type { Cursor } from './Chart'
import { signal } from '@preact/signals'
import { styleOf, type LineStyle } from './palette'
import { Records } from './records'
import { columnOf } from './columns'
import { forgetOldTrees } from './forget'
import { Names } from './Names'
import { Root } from './root'
import { STANDARD, type Series, type ViewOptions } from './series'
import { View } from './View'

/** Records of one stream: columns, with numbers as `y` or anything as `values`. Columns may be arrays, or their bytes. */
export interface Pushed {
  step: unknown
  wall?: unknown
  index?: unknown
  y?: unknown
  values?: unknown[]
}

export interface MountOptions extends Partial<ViewOptions> {
  view?: string
  title?: string
  /** Names of the streams, in their order; later ones are named as they come. */
  names?: string[]
  colors?: string[]
  theme?: 'light' | 'dark' | 'auto'
  /** When the runs began, in seconds, for times relative to it. */
  started?: number | null
  height?: number | string
}

export interface Mounted {
  /** Add records to a stream: the first one, or the one of this name. */
  push: (records: Pushed, stream?: string) => void
  setView: (view: string, options?: Partial<ViewOptions>) => void
  setTheme: (theme: 'light' | 'dark' | 'auto') => void
  /** Show no more of a stream. */
  remove: (stream: string) => void
  destroy: () => void
}

const TICK_MS = 40

export function mountWith(css: string, element: HTMLElement, given: MountOptions = {}): Mounted {
  forgetOldTrees()
  const host = element.appendChild(document.createElement('div'))
  host.style.cssText = 'display: block; width: 100%'
  host.style.height = typeof given.height === 'number' ? `${given.height}px` : (given.height ?? '320px')
  const shadow = host.attachShadow({ mode: 'open' })
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(css)
  shadow.adoptedStyleSheets = [sheet]
  const box = shadow.appendChild(document.createElement('div'))
  box.className = 'sightglass-view'

  const system = matchMedia('(prefers-color-scheme: dark)')
  const cursor = signal<Cursor | null>(null)
  const streams = new Map<string, { records: Records; style: LineStyle }>()
  let { view = '', theme = 'auto' } = given
  let options: ViewOptions = { ...STANDARD, ...picked(given) }
  let series: Series[] = []
  let [version, frame, drawn_ms, over] = [0, 0, 0, false]

  const streamAt = (name: string): Records => {
    let found = streams.get(name)
    if (!found) {
      const color = given.colors?.[streams.size]
      streams.set(name, (found = { records: new Records(), style: color ? { color, dash: [] } : styleOf(streams.size, Math.floor(streams.size / 8)) }))
      seriesAnew()
    }
    return found.records
  }
  const seriesAnew = () => {
    series = [...streams].map(([name, { records, style }]) => ({ id: name, label: name, style, records, started: given.started ?? null, second: false }))
  }
  const draw = (now: number) => {
    if (over) return
    if (now - drawn_ms < TICK_MS) return void (frame = requestAnimationFrame(draw))
    frame = 0
    drawn_ms = now
    const dark = theme === 'dark' || (theme === 'auto' && system.matches)
    host.dataset.theme = dark ? 'dark' : 'light'
    const title = given.title ?? series.map(({ label }) => label).join(', ')
    const shown = view ? <View id="view" title={title} view={view} series={series} options={options} version={version} dark={dark} cursor={cursor} /> : <p class="chart-empty">Nothing has come yet</p>
    render(
      <Root.Provider value={host}>
        <div class="view-body">{shown}</div>
        <Names series={series} />
      </Root.Provider>,
      box,
    )
  }
  const later = () => {
    version++
    frame ||= requestAnimationFrame(draw)
  }
  for (const name of given.names ?? []) streamAt(name)
  system.addEventListener('change', later)
  later()

  return {
    push(pushed, stream = [...streams.keys()][0] ?? 'stream') {
      const step = columnOf(pushed.step)
      const index = pushed.index === undefined ? step : columnOf(pushed.index, true)
      const wall = pushed.wall === undefined ? step : columnOf(pushed.wall)
      streamAt(stream).push({ step, wall, index, ...(pushed.values ? { values: pushed.values } : { y: columnOf(pushed.y) }) })
      later()
    },
    setView(next, change = {}) {
      view = next
      options = { ...options, ...change }
      later()
    },
    setTheme(next) {
      theme = next
      later()
    },
    remove(stream) {
      streams.delete(stream)
      seriesAnew()
      later()
    },
    destroy() {
      over = true
      cancelAnimationFrame(frame)
      system.removeEventListener('change', later)
      render(null, box)
      host.remove()
    },
  }
}

/** Of what was given, the options of views. */
function picked(given: MountOptions): Partial<ViewOptions> {
  return Object.fromEntries(Object.entries(given).filter(([name, value]) => name in STANDARD && value !== undefined))
}
