import { expect, it } from 'vitest'
import { oneLine, panelOf, readPanel, writePanel, type AskedPanel } from '../src/pages/ask/panels'
import { STANDARD } from '../src/views/series'

const panels: AskedPanel[] = [
  panelOf('key', 'batch.loss'),
  { view: 'line', pinned: true, options: { ...STANDARD, x: 'wall', smooth: 0.6, xlog: true, ylog: true, frames: true, history: 3, over: 'heat', last: 100 }, streams: [{ run: 'a', query: 'batch.x["a|b"]', second: false }, { run: 'a', query: 'n, m = 1', second: true }, { run: 'b', query: 'c', second: false }] },
  { view: '', pinned: false, options: STANDARD, streams: [{ run: 'a', query: 'x || y', second: true }] },
]

it.each(panels)('a panel is read as it was written: %o', (panel) => {
  expect(readPanel(writePanel(panel))).toEqual(panel)
})
it('a plain panel is short', () => {
  expect(writePanel(panels[0]!)).toBe('key||batch.loss')
  expect(readPanel('key|bars|batch.loss')).toMatchObject({ view: 'bars', streams: [{ run: 'key', query: 'batch.loss' }] })
})
it('what is written wrongly is no panel, or has what is usual', () => {
  expect(readPanel('')).toBeNull()
  expect(readPanel('a|b')).toBeNull()
  expect(readPanel('||query')).toBeNull()
  expect(readPanel('k|,smooth=x,history=1e9,x=diagonal,over=,wild|q')!.options).toEqual({ ...STANDARD, history: 100 })
})
it('a query stands on one line', () => {
  expect(oneLine(' a\n  .b ')).toBe('a .b')
})
