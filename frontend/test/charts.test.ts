import { expect, test } from 'vitest'
import { commandText, placeOf } from '../src/pages/charts/history'
import { linesOf, restartsOf, wantedOf } from '../src/pages/charts/wanted'
import { FOUND, counterparts, givenSpecs, gridRows, ownSpecs, prefixOf, sectionsOf, tagSearch, withChart } from '../src/pages/charts/sections'
import { readings } from '../src/views/Legend'

test.each([
  ['train/loss', 'train'], ['batch.loss', 'batch'], ['loss', 'other'], ['a/b/c', 'a'], ['mean(x.y)', 'other'], ['/x', 'other'], ['train/', 'other'],
])('%s belongs to %s', (tag, prefix) => expect(prefixOf(tag)).toBe(prefix))

test('what the run records of its machine comes last', () => {
  expect(sectionsOf(['system.cpu_percent', 'lr', 'val/a', 'train/a']).map(({ name }) => name)).toEqual(['val', 'train', 'other', 'system'])
})

test('the grid: own charts, pinned ones, sections; shut ones keep their head', () => {
  const rows = gridRows(ownSpecs([['both', 'train/loss', 'val/loss']]), ['lr'], sectionsOf(['train/a', 'train/b', 'train/c', 'lr']), new Set(['other']), 2)
  expect(rows.map((row) => (row.kind === 'head' ? `${row.name} ${row.n}` : row.charts.map(({ title }) => title).join()))).toEqual([
    'Own charts 1', 'both', 'Pinned 1', 'lr', 'train 3', 'a,b', 'c', 'other 1',
  ])
  const [, found] = gridRows([], [], [{ name: FOUND, tags: ['train/a'] }], new Set(), 2)
  expect(found).toMatchObject({ charts: [{ title: 'train/a' }] })
})

test('a search is a regular expression, or plain text while it is none', () => {
  expect(tagSearch('^Train/.*s$').matches('train/loss')).toBe(true)
  const { matches, problem } = tagSearch('f(x')
  expect([matches('f(x)'), matches('fx')]).toEqual([true, false])
  expect(problem).toMatch(/plain text/)
})

test('counterparts differ only in their prefix', () => {
  expect([...counterparts(['train/loss', 'val/loss', 'train/acc', 'lr'])]).toEqual([['loss', ['train/loss', 'val/loss']]])
})

test('own charts are added, changed in their place, dropped; names stay different', () => {
  const one = withChart([], null, { name: ' a ', tags: ['x'] })
  const two = withChart(one, null, { name: 'a', tags: ['y'] })
  expect(two).toEqual([['a', 'x'], ['a 2', 'y']])
  expect(withChart(two, 'a', { name: 'a', tags: ['x', 'z'] })).toEqual([['a', 'x', 'z'], ['a 2', 'y']])
  expect(withChart(two, 'a', null)).toEqual([['a 2', 'y']])
})

const runs = ['p', 'q'].map((key) => ({ id: key, label: key, style: { color: `#${key}`, dash: [] }, runs: [key] }))

test('tags that share a chart differ in their dash, or in colour where one run is drawn', () => {
  const having = () => new Set(['p', 'q'])
  const many = wantedOf(['a', 'b'], runs, having)
  expect(many.map(({ label }) => label)).toEqual(['p · a', 'q · a', 'p · b', 'q · b'])
  expect(many.map(({ style }) => style.color)).toEqual(['#p', '#q', '#p', '#q'])
  expect(many[0]!.style.dash).not.toEqual(many[2]!.style.dash)
  const [a, b] = wantedOf(['a', 'b'], runs.slice(0, 1), having)
  expect(a!.style.color).not.toBe(b!.style.color)
  expect(wantedOf(['a'], runs, () => new Set(['q'])).map(({ id }) => id)).toEqual(['q'])
})

const data = (y: number[]) => ({ n: y.length, thinned: false, x: Float64Array.from(y, (_, i) => i), y: Float64Array.from(y), wall: new Float64Array(y.length), step: new Float64Array(y.length), parts: [{ start: 0, end: y.length, alpha: 1, pass: 0 }], restarts: [] as number[], cursor: '', continued: false, n_pending: 0 })

test('the line before smoothing stays behind it, of a run and of a group', () => {
  const options = { weight: 0.5, extent: 1, band: 'std' as const }
  expect([...linesOf(runs[0]!, [data([1, 2])], options)[0]!.raw!]).toEqual([1, 2])
  expect([...linesOf(runs[0]!, [data([1, 2]), data([3, 4])], options)[0]!.raw!]).toEqual([2, 3])
  expect(linesOf(runs[0]!, [data([1, 2])], { ...options, weight: 0 })[0]!.raw).toBeUndefined()
  expect(linesOf(runs[0]!, [], options)).toEqual([])
})

test('a line whose run began again is in parts; what was done again is faint, each pass is smoothed by itself', () => {
  const [x, y] = [Float64Array.of(0, 1, 2, 3, 1, 2), Float64Array.of(9, 8, 7, 6, 1, 1)]
  const parts = [{ start: 0, end: 4, alpha: 0.31, pass: 0 }, { start: 0, end: 1, alpha: 1, pass: 0 }, { start: 4, end: 6, alpha: 1, pass: 1 }]
  const series = { ...data([0, 0, 0, 0, 0, 0]), x, y, parts, restarts: [1] }
  const options = { weight: 0, extent: 3, band: 'std' as const }
  const [faint, whole, newest] = linesOf(runs[0]!, [series], options)
  expect([faint!.alpha, faint!.earlier, faint!.label, [...faint!.y]]).toEqual([0.31, 'p', 'p, pass 1', [9, 8, 7, 6]])
  expect([whole!.alpha, whole!.earlier, [...whole!.x]]).toEqual([1, 'p', [0]])
  expect(newest).toMatchObject({ id: 'p', label: 'p', inParts: true, state: 'earlier passes faint' })
  expect([...newest!.x]).toEqual([1, 2])
  const smoothed = linesOf(runs[0]!, [series], { ...options, weight: 0.9 })
  expect([...smoothed[2]!.y]).toEqual([1, 1])
  expect(smoothed.map(({ raw }) => raw?.length)).toEqual([undefined, 1, 2])
  expect(restartsOf([series, series])).toEqual([{ x: 1, label: 'restarted', written: true }])
  // Of several runs the mean is over x, whatever the order.
  expect([...linesOf(runs[0]!, [series, series], options)[0]!.x]).toEqual([0, 1, 2, 3])
})

test('values at the cursor, the largest first, NaN last', () => {
  const line = (id: string, y: number) => ({ ...runs[0]!, id, x: Float64Array.of(5), y: Float64Array.of(y) })
  expect(readings([line('a', 1), line('b', NaN), line('c', 3)], 4).map(({ line: { id } }) => id)).toEqual(['c', 'a', 'b'])
})

test('what was done, in words', () => {
  expect(commandText({ kind: 'set', name: 'lr', value: 0.01, old: 0.1 })).toBe('lr 0.1 → 0.01')
  expect(commandText({ kind: 'set', name: 'lr', value: 0.01, old: null })).toBe('lr → 0.01')
  expect(commandText({ kind: 'call', name: 'checkpoint', value: [] })).toBe('checkpoint()')
  expect(commandText({ kind: 'call', name: 'f', value: [1, 'a'], error: 'no' })).toBe('f(1, a): no')
  expect(commandText({ kind: 'stop' })).toBe('stop')
})

test('the place of a command on each axis', () => {
  const entry = { kind: 'stop', step: 7, wall_time: 100 }
  expect([placeOf(entry, 'step', 90), placeOf(entry, 'relative', 90), placeOf(entry, 'wall', 90), placeOf(entry, 'relative', null)]).toEqual([7, 10, 100, null])
})

test('charts that files ask for stand before the sections of tags, under their category', () => {
  const given = givenSpecs([{ name: 'Both', charts: [{ title: 'loss', tags: ['loss/train', 'loss/test'] }] }])
  const rows = gridRows([], [], [{ name: 'loss', tags: ['loss/train'] }], new Set(), 2, given)
  expect(rows.map((row) => (row.kind === 'head' ? row.name : row.charts.map(({ title }) => title)))).toEqual(['Both', ['loss'], 'loss', ['train']])
  expect(gridRows([], [], [], new Set(['Both']), 2, given)).toHaveLength(1)
})
