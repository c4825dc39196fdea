import { expect, test } from 'vitest'
import * as made from './made'
import { columnValues } from '../src/data/columnValues'
import { configKeys, flatten, parseFilter, valueOf } from '../src/data/filter'
import type { Run } from '../src/data/types'

const run = (name: string, config: Record<string, unknown> = {}, more: Partial<Run> = {}): Run => made.run({ key: name, id: `id-${name}`, name, config, ...more })
const runs = [run('mnist-1', { lr: 0.1, 'a@b/c.max': 1, opt: { name: 'adam' }, wd: null, tags: ['b'] }), run('mnist-2', { lr: 0.01, opt: { name: 'sgd' }, tags: 'a b' }), run('cifar', { lr: '1e-2', big: true }, { state: 'running' })]
const found = (text: string) => runs.filter(parseFilter(text).matches).map(({ name }) => name)

test.each([
  ['', ['mnist-1', 'mnist-2', 'cifar']],
  ['MNIST', ['mnist-1', 'mnist-2']],
  ['^c|2$', ['mnist-2', 'cifar']],
  ['lr=0.01', ['mnist-2', 'cifar']],
  ['lr<0.1', ['mnist-2', 'cifar']],
  ['lr!=0.1', ['mnist-2', 'cifar']],
  ['lr>=0.1 mnist', ['mnist-1']],
  ['opt.name=ADAM', ['mnist-1']],
  ['a@b/c.max>0', ['mnist-1']],
  ['opt.name~^s', ['mnist-2']],
  ['!mnist', ['cifar']],
  ['!opt.name=adam', ['mnist-2', 'cifar']],
  ['big=true', ['cifar']],
  ['state=running', ['cifar']],
  ['nothing=1', []],
  ['lr=', ['mnist-1', 'mnist-2', 'cifar']],
  ['name="mnist-1"', ['mnist-1']],
])('%s', (text, names) => expect(found(text)).toEqual(names))

test.each([
  ['lr < 0.1', ['mnist-2', 'cifar']],
  ['lr > 0.05 or name = cifar', ['mnist-1', 'cifar']],
  ['lr > 0.05 and opt.name == "adam"', ['mnist-1']],
  ['mnist lr > 0.05 or cifar', ['mnist-1', 'cifar']],
  ['mnist (lr > 0.05 or cifar)', ['mnist-1']],
  ['not (opt.name = adam or cifar)', ['mnist-2']],
  ['!(opt.name=adam)', ['mnist-2', 'cifar']],
  ['not not cifar', ['cifar']],
  ['opt.name in (adam, "sgd")', ['mnist-1', 'mnist-2']],
  ['lr in [0.01, 7]', ['mnist-2', 'cifar']],
  ['opt.name not in (adam)', ['mnist-2', 'cifar']],
  ['opt.name contains da', ['mnist-1']],
  ['"b" in tags', ['mnist-1', 'mnist-2']],
  ['tags contains "a b"', ['mnist-2']],
  ['wd = none', ['mnist-1']],
  ['wd < 1', []],
  ['mnist-(1|3)', ['mnist-1']],
  ['"and"', []],
  ['android', []],
  ['duration > 0.5 and duration < 2s', ['mnist-1', 'mnist-2', 'cifar']],
  ['started < 1971-01-01', ['mnist-1', 'mnist-2', 'cifar']],
  ['started > 2026-11-20', []],
  ['MNIST AND NOT opt.name=sgd', ['mnist-1']],
  ['lr < 0.1 and', ['mnist-2', 'cifar']],
])('%s', (text, names) => {
  expect(found(text)).toEqual(names)
  expect(parseFilter(text).fault).toBeNull()
})

test.each([
  ['mnist-1 (', ['mnist-1'], 8, 'This bracket is not closed'],
  ['mnist-1 and (cifar or mnist', ['mnist-1'], 12, 'This bracket is not closed'],
  ['mnist-1)', ['mnist-1'], 7, 'There is no bracket that this one closes'],
  ['mnist-1 and and mnist', ['mnist-1'], 12, 'Expected a condition before `and`'],
  ['or mnist-1', ['mnist-1'], 0, 'Expected a condition before `or`'],
  ['(lr < ) mnist-1', ['mnist-1'], 6, 'Expected a value after `<`'],
  ['mnist-1 *x', ['mnist-1'], 8, '/*x/i: Nothing to repeat'],
  ['lr in (0.1', ['mnist-1'], 6, 'This bracket is not closed'],
])('%s: what is wrong is told with its place, and the rest holds', (text, names, at, message) => {
  expect(parseFilter(text).fault).toEqual({ at, message })
  expect(found(text)).toEqual(names)
})

test('whatever is typed, something is read', () => {
  const parts = ['(', ')', ' ', 'and', 'or', 'not', '!', '"', "'", '<', '>=', '~', 'in', '[', ',', 'lr', '0.1', '\\', '*']
  let seed = 1
  const next = () => (seed = (seed * 48_271) % 2_147_483_647)
  for (let i = 0; i < 3000; i++) {
    const text = Array.from({ length: (next() % 9) + 1 }, () => parts[next() % parts.length]).join(next() % 2 ? ' ' : '')
    const { matches, fault } = parseFilter(text)
    expect(typeof matches(runs[0]!)).toBe('boolean')
    expect(fault === null || (fault.at >= 0 && fault.at <= text.length)).toBe(true)
  }
})

test('config keys that differ come first', () => {
  expect(configKeys(runs.map((one) => ({ ...one, config: { same: 1, ...one.config } })))[0]).toEqual({ key: 'lr', n_values: 3 })
})

test('a config key hides a fact of the same name', () => {
  expect(valueOf(run('x', { state: 'mine' }), 'state')).toBe('mine')
  expect(flatten({ a: { b: { c: 1 } }, d: [1, { e: 2 }] })).toEqual({ 'a.b.c': 1, d: [1, { e: 2 }] })
})

test('what series come to is compared, too', () => {
  columnValues.value = new Map([['val/acc.max', new Map([['mnist-1', 0.9], ['mnist-2', 0.4]])]])
  expect(found('val/acc.max>0.5')).toEqual(['mnist-1'])
  expect(found('!val/acc.max>0.5')).toEqual(['mnist-2', 'cifar'])
  expect(parseFilter('mnist !val/acc.max>0.5 lr<1 "a b"').keys).toEqual([{ key: 'val/acc.max', at: 7 }, { key: 'lr', at: 23 }])
  columnValues.value = new Map([['val/acc.last', new Map([['mnist-2', 0.9]])]])
  expect(found('val/acc > 0.5')).toEqual(['mnist-2'])
  columnValues.value = new Map()
})

test('infinities compare as numbers, as JSON has them and as people write them; NaN with nothing', () => {
  columnValues.value = new Map([['loss.last', new Map([['burst', Infinity], ['sunk', -Infinity], ['odd', NaN], ['calm', 2]])]])
  const all = [run('burst', { lr: 'Infinity' }), run('sunk', { lr: '-Infinity' }), run('odd', { lr: 'NaN' }), run('calm', { lr: 0.1 }), run('none')]
  const names = (text: string) => all.filter(parseFilter(text).matches).map(({ name }) => name)
  for (const key of ['loss', 'lr']) {
    expect(names(`${key} > 100`)).toEqual(['burst'])
    expect(names(`${key} < 0`)).toEqual(['sunk'])
    expect(names(`${key} >= inf`)).toEqual(['burst'])
    expect(names(`${key} = Infinity`)).toEqual(['burst'])
    expect(names(`${key} = -inf`)).toEqual(['sunk'])
    expect(names(`${key} < inf`)).toEqual(['sunk', 'calm'])
    expect(names(`${key} <= -∞`)).toEqual(['sunk'])
    expect(names(`${key} != inf`)).toEqual(['sunk', 'odd', 'calm'])
    expect(names(`${key} < nan or ${key} >= nan`)).toEqual([])
  }
  columnValues.value = new Map()
})
