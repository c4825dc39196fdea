import { beforeEach, expect, test, vi } from 'vitest'

const stored = vi.hoisted(() => ({ getItem: () => null, setItem: () => undefined }))
vi.stubGlobal('localStorage', stored)
vi.mock('../src/data/socket', () => ({ Socket: class {} }))
vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener: () => undefined }))

import type { Run } from '../src/data/types'
import { LINES } from '../src/views/palette'

const { allRuns } = await import('../src/data/runs')
const { facetOf, facets, looksKey, styleOfGroup, styleOfRun } = await import('../src/data/looks')
const { state } = await import('../src/state/state')
const { drawn } = await import('../src/pages/charts/drawn')
const { divided, focusOf, specOf } = await import('../src/pages/charts/sections')

const START = state.value

/** A sweep of two optimizers, three learning rates and two seeds; one run has no learning rate. */
const sweep = ['adam', 'sgd'].flatMap((opt) =>
  [0.1, 0.001, 0.01].flatMap((lr) => [0, 1].map((seed) => ({ key: `${opt} ${lr} ${seed}`, config: { opt, lr, seed } as Record<string, unknown> }))),
)
const runOf = ({ key, config }: { key: string; config: Record<string, unknown> }, i: number) =>
  ({ key, name: key, id: key, project: '', started: i, ended: i + 1, live: false, config, metrics: [], annotations: { deleted: 0, archived: false, labels: [], notes: '', baseline: false } }) as unknown as Run

beforeEach(() => {
  state.value = { ...START, runs: ['*'] }
  allRuns.value = [...sweep, { key: 'plain', config: { opt: 'sgd' } }].map(runOf)
})

const looks = (colorby: string, dashby = '', more: Partial<typeof START> = {}) => void (state.value = { ...state.value, colorby, dashby, ...more })

test('a colour by a text, a dash by a number: equal values look equal, others differ', () => {
  looks('opt', 'lr')
  const found = sweep.map(({ key }) => styleOfRun(key))
  expect(new Set(found.map(({ color }) => color))).toEqual(new Set(LINES.slice(0, 2)))
  expect(found.map(({ color }) => color === LINES[0])).toEqual(sweep.map(({ config }) => config.opt === 'adam'))
  const dashes = new Map(sweep.map(({ config }, i) => [config.lr, String(found[i]!.dash)]))
  expect(dashes).toEqual(new Map([[0.001, ''], [0.01, '8,4'], [0.1, '3,3']]))
  expect(styleOfRun('plain').dash).toEqual([1, 4])
})

test('shades of numbers rise with them; what has no value is grey, and the key says so', () => {
  looks('lr')
  const colors = [0.001, 0.01, 0.1].map((lr) => styleOfRun(`sgd ${lr} 1`).color)
  expect(new Set(colors).size).toBe(3)
  expect(styleOfRun('plain').color).toBe('gray')
  expect(looksKey.value).toMatchObject([{ column: 'lr', n_more: 0, values: [{ text: '0.001', style: { color: colors[0] } }, { text: '0.01', style: { color: colors[1] } }, { text: '0.1', style: { color: colors[2] } }, { text: 'none' }] }])
  // Dashes that only kept lines of one colour apart would seem to mean something.
  expect(sweep.every(({ key }) => styleOfRun(key).dash.length === 0)).toBe(true)
})

test('without a column each run has its own colour, and there is nothing to explain', () => {
  expect(new Set(sweep.slice(0, 8).map(({ key }) => styleOfRun(key).color)).size).toBe(8)
  expect(looksKey.value).toEqual([])
})

test('a group has what all its runs have', () => {
  looks('opt', '', { group: 'opt|lr' })
  expect(['adam', 'sgd'].map((opt) => styleOfGroup(`opt=${opt} lr=0.1`).color)).toEqual(LINES.slice(0, 2))
  looks('opt', '', { group: 'lr' })
  expect(styleOfGroup('lr=0.1').color).toBe('gray')
  expect(looksKey.value[0]!.values.at(-1)!.text).toBe('none or several')
})

test('more values than there are colours: numbers have a ramp, of texts the rest is counted', () => {
  allRuns.value = Array.from({ length: 20 }, (_, i) => runOf({ key: `r${i}`, config: { n: i / 7, word: `w${i}` } }, i))
  looks('n', 'word')
  const [color, dash] = looksKey.value
  expect([color!.n_more, dash!.n_more, dash!.values.length]).toEqual([0, 12, 8])
  expect(color!.values.length).toBeGreaterThan(2)
})

test('charts are divided by a key: each facet has the lines of its runs, also of a group that lies in several', () => {
  looks('', '', { facet: 'opt' })
  expect(facets.value).toEqual({ names: ['opt=adam', 'opt=sgd'], n_more: 0 })
  expect(new Map(drawn.value.map(({ id, facet }) => [id, facet]))).toEqual(new Map([...sweep.map(({ key, config }) => [key, `opt=${String(config.opt)}`] as const), ['plain', 'opt=sgd']]))
  looks('', '', { facet: 'opt', group: 'lr' })
  expect(drawn.value.filter(({ id }) => id === 'group lr=0.1').map(({ label, facet }) => `${label} ${facet}`).sort()).toEqual(['lr=0.1 (2) opt=adam', 'lr=0.1 (2) opt=sgd'])
  const section = { name: 's', charts: [specOf('loss'), specOf('lr')], pinned: false, shut: false }
  const [found] = divided([section], facets.value.names, (tags, facet) => tags[0] === 'loss' || facet === 'opt=sgd')
  expect(found!.charts.map(focusOf)).toEqual(['loss\nopt=adam', 'loss\nopt=sgd', 'lr\nopt=sgd'])
  expect(divided([section], [], () => false)[0]!.charts).toHaveLength(2)
})

test('of many facets the first are drawn, and the others counted', () => {
  allRuns.value = Array.from({ length: 15 }, (_, i) => runOf({ key: `r${i}`, config: { n: i } }, i))
  looks('', '', { facet: 'n' })
  expect([facets.value.names.length, facets.value.n_more, facetOf(allRuns.value[10]!)]).toEqual([12, 3, 'n=10'])
})
