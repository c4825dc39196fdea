// Every key of the page, in the order of the help sheet.

import { kindOfX } from './pages/charts/cards'
import { newChart } from './pages/charts/OwnChart'
import { file } from './data/file'
import { showAll, showNone } from './data/runs'
import { X_KINDS } from './data/types'
import { sidebarOpen } from './pages/runs/RunList'
import { at, page, state, update } from './state/state'
import { nextTheme } from './state/theme'
import { savePage } from './data/savePage'
import { printPage } from './ui/printPage'
import { viewsOpen } from './ui/SavedViews'
import { focusHotkey, helpOpen, type Shortcut } from './ui/shortcuts'

export const shortcuts: Shortcut[] = [
  { keys: '?', does: 'Show or hide this sheet', run: () => (helpOpen.value = !helpOpen.value) },
  { keys: 'g c', does: 'Go to the charts', run: () => update({}, { page: 'charts' }) },
  { keys: 'g t', does: 'Go to the tensors', run: () => update({}, { page: 'tensors' }) },
  { keys: 'g m', does: 'Go to images, figures and texts', run: () => update({}, { page: 'media' }) },
  { keys: 'g r', does: 'Go to the runs', run: () => update({}, { page: 'runs' }) },
  { keys: 'g x', does: 'Go to Control', run: () => update({}, { page: 'control' }) },
  { keys: 'q', does: 'Ask a run', run: () => focusHotkey('q') },
  { keys: '/', does: 'Filter runs', run: () => focusFilter() },
  { keys: 't', does: 'Search tags', run: () => focusHotkey('t') },
  { keys: 'b', does: 'Show or hide the list of runs', run: () => (sidebarOpen.value = !sidebarOpen.value) },
  { keys: 'a', does: 'Show all runs of the list', run: showAll },
  { keys: 'n', does: 'Hide all runs', run: showNone },
  { keys: 'c', does: 'New chart of several tags', run: () => page.peek() === 'charts' && newChart() },
  { keys: 'x', does: 'Next horizontal axis', run: () => update({ x: X_KINDS[(X_KINDS.indexOf(kindOfX(at.x.peek()) ?? 'wall') + 1) % 3]!, zoom: null }) },
  { keys: 'y', does: 'Logarithmic vertical axis', run: () => update({ ylog: !state.peek().ylog }) },
  { keys: 'l', does: 'Logarithmic horizontal axis', run: () => update({ xlog: !state.peek().xlog }) },
  { keys: 'o', does: 'Clip outliers', run: () => update({ clip: !state.peek().clip }) },
  { keys: '[', does: 'Smooth less', run: () => smoothBy(-0.1) },
  { keys: ']', does: 'Smooth more', run: () => smoothBy(0.1) },
  { keys: '0', does: 'Show everything again after zooming', run: () => update({ zoom: null, yzoom: {} }) },
  { keys: 'v', does: 'Saved views: go to one, or save what the page shows', run: () => void (viewsOpen.value = !file) },
  { keys: 'p', does: 'Print all of the page', run: () => void printPage() },
  { keys: 's', does: 'Save what the page shows as one HTML file', run: () => void savePage() },
  { keys: 'd', does: 'Next theme: system, light, dark', run: nextTheme },
  { keys: 'Escape', does: 'Close what is open', run: () => update(page.peek() === 'run' ? { focus: '' } : { run: '', focus: '', moment: '' }) },
  { keys: 'click', does: 'On a line: all that its run recorded at that moment; ← → go from step to step' },
  { keys: 'drag', does: 'Zoom: sideways into steps, in a box into steps and values; double click shows everything' },
  { keys: 'Alt ← → ↑ ↓', does: 'On a chart: move it before or behind the next one; on the name of a section: move the section' },
  { keys: '↑ ↓ ← →', does: 'In the list of runs: from run to run, and among the buttons of one' },
  { keys: '← → ↑ ↓', does: 'On a view over the runs: go from run to run; Space selects, with Shift those on the way' },
  { keys: '↑ ↓ ← →', does: 'In a table of values: from cell to cell; with Shift they choose a range' },
  { keys: 'PageUp PageDown', does: 'In a table of values: by as many rows as are in sight' },
  { keys: 'Home End', does: 'In a table of values: to the first and last column; with Ctrl to the first and last cell' },
  { keys: 'Ctrl C', does: 'In a table of values: copy the cells that are chosen; Ctrl A chooses all' },
  { keys: '← →', does: 'On a chart: read its values; with Shift in larger steps' },
]

/** At once, so that no key that follows is lost; where the list of runs must open first, a frame later. */
function focusFilter(): void {
  if (page.peek() !== 'charts' || sidebarOpen.peek()) return focusHotkey('/')
  sidebarOpen.value = true
  requestAnimationFrame(() => focusHotkey('/'))
}

function smoothBy(change: number): void {
  update({ smooth: Math.min(0.999, Math.max(0, Math.round((state.peek().smooth + change) * 1000) / 1000)) })
}
