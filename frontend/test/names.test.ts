import { expect, test } from 'vitest'
import { namesApart } from '../src/data/names'

const run = (key: string, name: string, config: Record<string, unknown> = {}, started: number | null = 0, project = '') => ({ key, id: key, name, config, started, project })
const said = (...runs: ReturnType<typeof run>[]) => [...namesApart(runs).values()]

test('a name that stands alone needs nothing', () => {
  expect(said(run('a', 'one', { lr: 1 }), run('b', 'two', { lr: 2 }))).toEqual(['', ''])
})

test('the config value that differs, not those that are the same', () => {
  expect(said(run('a', 'x', { n: 1, opt: { lr: 0.1 } }), run('b', 'x', { n: 1, opt: { lr: 0.01 } }))).toEqual(['lr=0.1', 'lr=0.01'])
})

test('no more keys than are needed, the first of the config among equals', () => {
  const grid = [0.1, 0.2].flatMap((lr) => [1, 2].map((seed) => run(`${lr}${seed}`, 'x', { lr, seed, both: `${lr}-${seed % 1}` })))
  expect(said(...grid)).toEqual(['lr=0.1 seed=1', 'lr=0.1 seed=2', 'lr=0.2 seed=1', 'lr=0.2 seed=2'])
})

test('the project where it differs, and what differs in it', () => {
  const [a, b, c] = [run('a', 'x', { lr: 1 }, 0, 'one'), run('b', 'x', { lr: 2 }, 0, 'one'), run('c', 'x', { lr: 3 }, 0, 'two')]
  expect(said(a!, b!, c!)).toEqual(['one lr=1', 'one lr=2', 'two'])
  expect(said(a!, b!)).toEqual(['lr=1', 'lr=2'])
})

test('a key that one of them lacks', () => {
  expect(said(run('a', 'x', { lr: 1 }), run('b', 'x'))).toEqual(['lr=1', 'no lr'])
})

test('keys of the same ending are said in full', () => {
  const of = (g: number, d: number) => ({ gen: { lr: g }, dis: { lr: d } })
  expect(said(run('a', 'x', of(1, 1)), run('b', 'x', of(1, 2)), run('c', 'x', of(2, 1)))).toEqual(['gen.lr=1 dis.lr=1', 'gen.lr=1 dis.lr=2', 'gen.lr=2 dis.lr=1'])
})

test('the time of the start where configs are equal; the day only where days differ', () => {
  const at = (...parts: [number, number, number, number, number, number]) => new Date(...parts).getTime() / 1000
  const [noon, later, next] = [at(2026, 0, 2, 12, 0, 0), at(2026, 0, 2, 13, 0, 5), at(2026, 0, 3, 12, 0, 0)]
  expect(said(run('a', 'x', {}, noon), run('b', 'x', {}, later))).toEqual(['12:00:00', '13:00:05'])
  expect(said(run('a', 'x', {}, noon), run('b', 'x', {}, next))).toEqual(['2026-01-02 12:00:00', '2026-01-03 12:00:00'])
})

test('only runs with equal configs show their time', () => {
  expect(said(run('a', 'x', { lr: 1 }, 5), run('b', 'x', { lr: 2 }, 6), run('c', 'x', { lr: 2 }, 7)).map((text) => text.split(' ').length)).toEqual([1, 2, 2])
})

test('the start of the id as the last resort', () => {
  expect(said(run('abcd12', 'x'), run('abcd34', 'x'))).toEqual(['abcd1', 'abcd3'])
})

test('a long value is cut', () => {
  const [first] = said(run('a', 'x', { note: 'a'.repeat(50) }), run('b', 'x', { note: 'b'.repeat(50) }))
  expect(first!.length).toBeLessThan(30)
})
