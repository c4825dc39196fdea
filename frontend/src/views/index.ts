// The module of views: draws the records of any streams in any view. Notebooks load it with the card of a run: see notebook/index.ts.
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

import { css } from './css'
import { mountWith, type Mounted, type MountOptions } from './mount'

export type { Mounted, MountOptions, Pushed, StreamStyle, Theme } from './mount'
export type { ViewOptions } from './series'
export { VIEWS } from './View'

/** Make a view in an element. */
export function mount(element: HTMLElement, options: MountOptions = {}): Mounted {
  return mountWith(css, element, options)
}
