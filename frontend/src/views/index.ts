// The module of views: draws the records of any streams in any view. Self-contained: one file, no imports, no requests.
//
//   import { mount } from './views.js'
//   const view = mount(element, { view: 'line', names: ['loss'] })
//   view.push({ step: [0, 1, 2], y: [3, 2, 1] })
//   view.push({ step: [0, 1], y: [2, 1] }, 'other')
//   view.setView('line', { smooth: 0.6, ylog: true })
//   view.setStream('other', { label: 'validation', second: true })
//   view.destroy()
//
// views/choose.py decides which view shows which values.

import uplot from 'uplot/dist/uPlot.min.css?inline'
import base from '../style/base.css?inline'
import charts from '../style/charts.css?inline'
import mounted from '../style/mount.css?inline'
import tokens from '../style/tokens.css?inline'
import views from '../style/views.css?inline'
import { mountWith, type Mounted, type MountOptions } from './mount'

export type { Mounted, MountOptions, Pushed, StreamStyle, Theme } from './mount'
export type { ViewOptions } from './series'
export { VIEWS } from './View'

const FRAME = `:host { contain: content; }
.sightglass-view { height: 100%; display: flex; flex-direction: column; position: relative; overflow: hidden; background: var(--surface); color: var(--text); font: var(--text-m) / 1.45 var(--font); font-variant-numeric: tabular-nums; border-radius: var(--radius); }`

/** The page's styles, for a box: what the page says of its root holds for the box. */
const css = [uplot, tokens.replace(/:root\[([^\]]*)\]/g, ':host([$1])').replaceAll(':root', ':host'), base, charts, views, mounted, FRAME].join('\n')

/** Make a view in an element. */
export function mount(element: HTMLElement, options: MountOptions = {}): Mounted {
  return mountWith(css, element, options)
}
