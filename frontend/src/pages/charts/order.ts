// The reader's order of charts and sections: by the mouse, or with Alt and the arrow keys. Kept in the address.

import { signal } from '@preact/signals'
import { state, update } from '../../state/state'
import { movedTo, ordered } from './ordered'
import { OWN, PINNED } from './sections'

/** Where what was moved is now, for those who do not see it. */
export const said = signal('')

/** The charts of each section as they are in sight now, and the sections. */
export const inSight: { charts: Map<string, string[]>; sections: string[] } = { charts: new Map(), sections: [] }

/** Move a chart by some places. */
export function moveCard(section: string, id: string, by: number): void {
  const now = inSight.charts.get(section) ?? []
  putCard(section, id, now.indexOf(id) + by)
}

/** Put a chart at a place of its section. */
export function putCard(section: string, id: string, place: number): void {
  const ids = movedTo(inSight.charts.get(section) ?? [], id, place)
  said.value = `Chart ${ids.indexOf(id) + 1} of ${ids.length}`
  const { own, panel, order } = state.peek()
  if (section === OWN) update({ own: ordered(own, ids, ([name]) => `own ${name}`) })
  else if (section === PINNED) update({ panel: ordered(panel, ids, (tag) => tag) })
  else update({ order: [...order.filter(([name]) => name !== section), [section, ...ids]] })
}

/** Put a section at a place among all. */
export function putSection(name: string, place: number): void {
  const sections = movedTo(inSight.sections, name, place)
  said.value = `Section ${sections.indexOf(name) + 1} of ${sections.length}`
  update({ sections })
}

export const moveSection = (name: string, by: number): void => putSection(name, inSight.sections.indexOf(name) + by)

const STEPS: Record<string, number> = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }

/** Whether a key moves what has the focus: Alt with an arrow. It keeps the focus. */
export function movesBy(event: KeyboardEvent, move: (by: number) => void): void {
  const by = event.altKey ? STEPS[event.key] : undefined
  if (by === undefined) return
  event.preventDefault()
  event.stopPropagation()
  const { dataset } = event.currentTarget as HTMLElement
  move(by)
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const box = boxOf(dataset)
    // A chart that comes into another row is drawn a moment later.
    if (!box?.contains(document.activeElement)) (box?.querySelector<HTMLElement>('.section-name') ?? box)?.focus()
  }))
}

const boxOf = ({ card, section }: DOMStringMap) => document.querySelector<HTMLElement>(`[data-section="${CSS.escape(section ?? '')}"]${card === undefined ? ':not([data-card])' : `[data-card="${CSS.escape(card)}"]`}`)

const FAR = 6
/** From here to the edge of the list it scrolls while something is dragged. */
const EDGE = 48

/** Drag a chart within its section, or a section: a bar shows where it comes. With a finger the list scrolls, as ever. */
export function drag(event: PointerEvent): void {
  const box = (event.currentTarget as HTMLElement).closest<HTMLElement>('[data-section]')!
  if (event.button !== 0 || event.pointerType === 'touch' || (event.target as Element).closest('.panel-tools')) return
  const { card, section = '' } = box.dataset
  const list = box.closest('.charts-rows')
  const others = card === undefined ? '[data-section]:not([data-card])' : `[data-section="${CSS.escape(section)}"][data-card]`
  let [moving, to, behind] = [false, null as HTMLElement | null, false]
  const over = (at: PointerEvent) => {
    if (!moving && Math.hypot(at.clientX - event.clientX, at.clientY - event.clientY) < FAR) return
    moving = true
    getSelection()?.removeAllRanges()
    document.body.classList.add('is-moving')
    to?.removeAttribute('data-drop')
    to = document.elementFromPoint(at.clientX, at.clientY)?.closest<HTMLElement>(others) ?? null
    // The facets of a chart are moved together.
    if (to === box || (card !== undefined && to?.dataset.card === card)) to = null
    const place = to?.getBoundingClientRect()
    behind = Boolean(place && at.clientX > place.left + place.width / 2)
    to?.setAttribute('data-drop', behind ? 'behind' : 'before')
    const edges = list?.getBoundingClientRect()
    if (edges && at.clientY < edges.top + EDGE) list!.scrollTop -= EDGE / 3
    if (edges && at.clientY > edges.bottom - EDGE) list!.scrollTop += EDGE / 3
  }
  const end = (last: Event) => {
    removeEventListener('pointermove', over)
    for (const name of ['pointerup', 'pointercancel', 'keydown']) removeEventListener(name, end, true)
    document.body.classList.remove('is-moving')
    to?.removeAttribute('data-drop')
    if (!moving) return
    // The click that ends a drag opens or shuts nothing.
    addEventListener('click', (click) => click.stopPropagation(), { capture: true, once: true })
    setTimeout(() => dispatchEvent(new MouseEvent('click')))
    if (last.type !== 'pointerup' || !to) return
    const names = (card === undefined ? inSight.sections : (inSight.charts.get(section) ?? [])).filter((one) => one !== (card ?? section))
    const place = names.indexOf(card === undefined ? to.dataset.section! : to.dataset.card!) + Number(behind)
    if (card === undefined) putSection(section, place)
    else putCard(section, card, place)
  }
  addEventListener('pointermove', over)
  for (const name of ['pointerup', 'pointercancel', 'keydown']) addEventListener(name, end, true)
}
