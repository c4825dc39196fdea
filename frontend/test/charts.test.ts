import { expect, test } from 'vitest'
import { entry } from './made'
import { commandText, placeOf } from '../src/pages/charts/history'
import { linesOf, restartsOf, wantedOf } from '../src/pages/charts/wanted'
import { cardOf, withCard } from '../src/pages/charts/cards'
import { movedTo, ordered } from '../src/pages/charts/ordered'
import { counterparts, FOUND, givenSpecs, gridRows, ownSpecs, prefixOf, sectionsOf, shownSections, tagSearch, widest, withChart } from '../src/pages/charts/sections'
import { besides, differences, nearestFirst, oddities, readings } from '../src/views/Legend'

test.each([
  ['train/loss', 'train'], ['batch.loss', 'batch'], ['loss', 'other'], ['a/b/c', 'a'], ['mean(x.y)', 'other'], ['/x', 'other'], ['train/', 'other'],
])('%s belongs to %s', (tag, prefix) => expect(prefixOf(tag)).toBe(prefix))

test('what the run records of its machine comes last', () => {
  expect(sectionsOf(['system.cpu_percent', 'lr', 'val/a', 'train/a']).map(({ name }) => name)).toEqual(['val', 'train', 'other', 'system'])
})

const grid = (own: string[][], pinned: string[], tags: string[], shut: string[], columns: number, order: string[][] = [], sizes: Record<string, { wide?: number; tall?: number }> = {}) =>
  gridRows(shownSections(ownSpecs(own), pinned, sectionsOf(tags), new Set(shut), order), columns, (id) => sizes[id] ?? {}).map((row) =>
    row.kind === 'heads' ? row.heads.map(({ name, n, column }) => `${name} ${n}@${column}`).join(' ') : row.cells.map(({ spec, column, row: top, wide, tall }) => `${spec.title}@${column},${top}${wide * tall > 1 ? ` ${wide}x${tall}` : ''}`).join(' '),
  )

test('the grid: own charts, pinned ones, sections; shut ones keep their head', () => {
  expect(grid([['both', 'train/loss', 'val/loss']], ['lr'], ['train/a', 'train/b', 'train/c', 'lr'], ['other'], 2)).toEqual([
    'Own charts 1@0', 'both@0,0', 'Pinned 1@0', 'lr@0,0', 'train 3@0', 'a@0,0 b@1,0', 'c@0,0', 'other 1@0',
  ])
  const [, found] = gridRows(shownSections([], [], [{ name: FOUND, tags: ['train/a'] }], new Set(), []), 2)
  expect(found).toMatchObject({ cells: [{ spec: { title: 'train/a' } }] })
})

test('sections that fit side by side share a row', () => {
  expect(grid([], [], ['a/x', 'b/x', 'b/y', 'c/x', 'd/x'], [], 4)).toEqual(['a 1@0 b 2@1 c 1@3', 'x@0,0 x@1,0 y@2,0 x@3,0', 'd 1@0', 'x@0,0'])
  const many = grid([], [], Array.from({ length: 500 }, (_, i) => `s${i}/x`), [], 7)
  expect(many.length).toBe(2 * Math.ceil(500 / 7))
  expect(widest(gridRows(shownSections([], [], sectionsOf(['a/x', 'b/x']), new Set(), []), 7))).toBe(2)
})

test('wide and tall charts: others fill the row beside them', () => {
  const tags = ['s/a', 's/b', 's/c', 's/d', 's/e']
  expect(grid([], [], tags, [], 3, [], { 's/a': { wide: 2 } })).toEqual(['s 5@0', 'a@0,0 2x1 b@2,0', 'c@0,0 d@1,0 e@2,0'])
  expect(grid([], [], tags, [], 3, [], { 's/b': { tall: 2 } })).toEqual(['s 5@0', 'a@0,0 b@1,0 1x2 c@2,0 d@0,1 e@2,1'])
  expect(grid([], [], tags, [], 3, [], { 's/b': { wide: 0 } })).toEqual(['s 5@0', 'a@0,0', 'b@0,0 3x1', 'c@0,0 d@1,0 e@2,0'])
  expect(grid([], [], tags, [], 1, [], { 's/a': { wide: 2, tall: 2 } })[1]).toBe('a@0,0 1x2')
})

test('charts and sections in the reader\'s order; new ones come behind', () => {
  expect(grid([], [], ['s/a', 's/b', 's/c'], [], 3, [['s', 's/c', 's/gone', 's/a']])[1]).toBe('c@0,0 a@1,0 b@2,0')
  expect(ordered(['a', 'b', 'c', 'd'], ['c', 'a'], (one) => one)).toEqual(['c', 'a', 'b', 'd'])
  expect(movedTo(['a', 'b', 'c'], 'a', 1)).toEqual(['b', 'a', 'c'])
  expect(movedTo(['a', 'b', 'c'], 'b', -1)).toEqual(['b', 'a', 'c'])
  expect(movedTo(['a', 'b', 'c'], 'b', 9)).toEqual(['a', 'c', 'b'])
})

test('what a chart has of its own, in the address and back', () => {
  const card = { x: 'val/accuracy=1', points: true, smooth: 0.25, ylog: false, wide: 0 }
  const lists = withCard([['other', 'ylog:1']], 'a|b', card)
  expect(lists).toEqual([['other', 'ylog:1'], ['a|b', 'x:val/accuracy=1', 'points:1', 'smooth:0.25', 'ylog:0', 'wide:0']])
  expect(cardOf(lists, 'a|b')).toEqual(card)
  expect(cardOf([['a', 'smooth:7', 'wide:1.5', 'tall:-1', 'x:', 'nonsense']], 'a')).toEqual({})
  expect(withCard(lists, 'a|b', { x: undefined })).toEqual([['other', 'ylog:1']])
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

const data = (y: number[]) => ({ n: y.length, thinned: false, x: Float64Array.from(y, (_, i) => i), y: Float64Array.from(y), wall: new Float64Array(y.length), step: new Float64Array(y.length), parts: [{ start: 0, end: y.length, alpha: 1, pass: 0 }], restarts: [] as number[], tracks: [] as string[], cursor: '', continued: false, n_pending: 0 })

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

test('a mean is dashed where not all of its runs are, and does not go from one to the other', () => {
  const options = { weight: 0, extent: 1, band: 'std' as const }
  const long = data([10, 10, 10, 10, 10])
  const short = data([0, 0, 0])
  const [rest, all] = linesOf(runs[0]!, [long, short], options)
  expect(all).toMatchObject({ id: 'p', of: 2, inParts: true, style: { dash: [] } })
  expect([[...all!.x], [...all!.y], Array.from(all!.n!)]).toEqual([[0, 1, 2], [5, 5, 5], [2, 2, 2]])
  expect(rest).toMatchObject({ earlier: 'p', of: 2, style: { dash: [2, 3] } })
  expect([[...rest!.x], [...rest!.y], Array.from(rest!.n!)]).toEqual([[3, 4], [10, 10], [1, 1]])
  // Gaps within a run are no end of it.
  expect(linesOf(runs[0]!, [long, data([1, NaN, 1, NaN, 1])], options)).toHaveLength(1)
})

test('points are drawn of each run, under one name', () => {
  const lines = linesOf(runs[0]!, [data([1, 2]), data([3, 4])], { weight: 0.5, extent: 1, band: 'std' as const, points: true })
  expect(lines.map(({ id, earlier, points, y }) => [id, earlier, points, [...y]])).toEqual([['p', undefined, true, [1, 2]], ['p 1', 'p', true, [3, 4]]])
})

test('what no run has as a tag is an expression, which is asked of all', () => {
  expect(wantedOf(['a - b'], runs, () => undefined).map(({ id }) => id)).toEqual(['p', 'q'])
})

test('lines that ended before the cursor come last, with their end', () => {
  const line = (id: string, y: number, end: number) => ({ ...runs[0]!, id, x: Float64Array.of(0, end), y: Float64Array.of(y, y) })
  const found = readings([line('a', 9, 10), line('b', 1, 20), line('c', 2, 18)], 19, 2)
  expect(found.map(({ line: { id }, until }) => [id, until])).toEqual([['c', null], ['b', null], ['a', 10]])
})

test('values at the cursor, the largest first, NaN last', () => {
  const line = (id: string, y: number) => ({ ...runs[0]!, id, x: Float64Array.of(5), y: Float64Array.of(y) })
  expect(readings([line('a', 1), line('b', NaN), line('c', 3)], 4).map(({ line: { id } }) => id)).toEqual(['c', 'a', 'b'])
})

test('what was done, in words', () => {
  expect(commandText(entry({ kind: 'set', name: 'lr', value: 0.01, old: 0.1 }))).toBe('lr 0.1 → 0.01')
  expect(commandText(entry({ kind: 'set', name: 'lr', value: 0.01, old: null }))).toBe('lr → 0.01')
  expect(commandText(entry({ kind: 'call', name: 'checkpoint', value: [] }))).toBe('checkpoint()')
  expect(commandText(entry({ kind: 'call', name: 'f', value: [1, 'a'], error: 'no' }))).toBe('f(1, a): no')
  expect(commandText(entry({ kind: 'stop' }))).toBe('stop')
  expect(commandText(entry({ kind: 'alert', name: 'loss explodes', value: 'it is 1e9', note: 'error' }))).toBe('loss explodes')
})

test('the place of a command on each axis', () => {
  const stop = entry({ kind: 'stop', step: 7, wall_time: 100 })
  expect([placeOf(stop, 'step', 90), placeOf(stop, 'relative', 90), placeOf(stop, 'wall', 90), placeOf(stop, 'relative', null)]).toEqual([7, 10, 100, null])
  expect(placeOf({ ...stop, kind: 'alert', step: Number.NaN }, 'step', 90)).toBe(null)
})

test('charts that files ask for stand before the sections of tags, under their category', () => {
  const given = givenSpecs([{ name: 'Both', charts: [{ title: 'loss', tags: ['loss/train', 'loss/test'] }] }])
  const shown = shownSections([], [], [{ name: 'loss', tags: ['loss/train'] }], new Set(['Both']), [], given)
  expect(shown.map(({ name, shut, charts }) => [name, shut, charts.map(({ title }) => title)])).toEqual([['Both', true, ['loss']], ['loss', false, ['train']]])
})

test('names of a table lose what all of them have, and keep what differs', () => {
  const left = (...names: string[]) => differences(names).names
  expect(differences(['lr=0.01 opt=adam (4)', 'lr=0.1 opt=adam (4)'])).toEqual({ names: ['0.01', '0.1'], keys: 'lr' })
  expect(differences(['lr=1 opt=adam', 'lr=2 opt=sgd', 'lr=2 opt=lion'])).toEqual({ names: ['1 adam', '2 sgd', '2 lion'], keys: 'lr opt' })
  expect(differences(['lr=1 (3)', 'lr=2 (4)'])).toEqual({ names: ['1 (3)', '2 (4)'], keys: 'lr' })
  expect(left('lr=1 opt=adam', 'lr=2 no opt')).toEqual(['lr=1 opt=adam', 'lr=2 no opt'])
  expect(left('a-very-long-name-seed0', 'a-very-long-name-seed1')).toEqual(['…seed0', '…seed1'])
  expect(left('fold-1 1e-4', 'fold-2 1e-3')).toEqual(['fold-1 1e-4', 'fold-2 1e-3'])
  expect(left('run 0.01', 'run 0.1')).toEqual(['0.01', '0.1'])
  expect(left('sweep lr=0.1', 'sweep')).toEqual(['lr=0.1', 'sweep'])
  expect(left('train/loss', 'train/', 'x')).toEqual(['train/loss', 'train/', 'x'])
  expect([left('a b'), left('a', 'a')]).toEqual([['a b'], ['a', 'a']])
})

test('the lines nearest to the pointer come first, ended ones last; by key the largest', () => {
  const line = (id: string, y: number, end = 20) => ({ ...runs[0]!, id, x: Float64Array.of(0, end), y: Float64Array.of(y, y) })
  const rows = readings([line('a', 1), line('b', 5), line('c', 9), line('over', 4, 10)], 19)
  const ids = (away: [string, number][], most = 9) => nearestFirst(rows, new Map(away), most).map(({ line: { id } }) => id)
  expect(ids([['a', 40], ['b', 2], ['c', 30], ['over', 0]])).toEqual(['b', 'c', 'a', 'over'])
  expect(ids([])).toEqual(['c', 'b', 'a', 'over'])
  // Of many also the largest and the smallest, so that a spike is told.
  expect(ids([['a', 40], ['b', 2], ['c', 30]], 3)).toEqual(['b', 'c', 'a'])
  expect(ids([['a', 40], ['b', 2], ['c', 30]], 2)).toEqual(['c', 'a'])
  expect(nearestFirst(readings([line('x', NaN)], 5), new Map(), 1)).toHaveLength(1)
})

test('of the values that are no numbers, each line names the one nearest to the cursor', () => {
  const line = (id: string, y: number[]) => ({ ...runs[0]!, id, x: Float64Array.from(y, (_, i) => i), y: Float64Array.from(y) })
  const found = oddities([line('a', [NaN, NaN, 1, Infinity]), line('b', [1, 2, 3, 4])], 2.4, [1, 3])
  expect(found.map(({ line: { id }, x, y }) => [id, x, y])).toEqual([['a', 3, Infinity]])
})

test('a table stands beside its chart, else below or above; only where nothing has room within it', () => {
  const [size, view] = [{ width: 200, height: 100 }, { width: 1000, height: 800 }]
  const at = (left: number, top: number, right: number, bottom: number, pointer = 500) => besides({ left, top, right, bottom }, size, view, pointer)
  expect(at(0, 50, 400, 300)).toEqual({ left: 408, top: 50 })
  expect(at(500, 750, 1000, 1000)).toEqual({ left: 292, top: 692 })
  expect(at(0, 50, 1000, 300)).toEqual({ left: 400, top: 308 })
  expect(at(0, 400, 1000, 780, 990)).toEqual({ left: 792, top: 292 })
  expect(at(0, 0, 1000, 800, 900)).toEqual({ left: 8, top: 8 })
})
