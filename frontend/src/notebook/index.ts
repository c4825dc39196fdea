// The module that notebooks load, once per page: the page's views, and the card of a run. Self-contained: one file, no
// imports, no requests.

import { showCard } from './card'
import { KernelLink, type WidgetModel } from './kernel'
import { showView } from './view'

export { mount, VIEWS } from '../views'

/** Connect a widget to its kernel; the function that is returned shows it in an element. */
export function connect(model: WidgetModel): (el: HTMLElement) => () => void {
  const link = new KernelLink(model)
  const { kind, ...options } = model.get('options') as { kind: 'view' | 'card'; height: number; points: number; frame: string }
  return (el) => link.show(kind === 'card' ? showCard(el, link) : showView(el, options, link))
}
