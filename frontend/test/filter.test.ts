import { expect, test } from 'vitest'
import { columnValues } from '../src/data/columnValues'
import { configKeys, filterKeys, flatten, parseFilter, valueOf } from '../src/data/filter'
import type { Run } from '../src/data/types'

const run = (name: string, config: Record<string, unknown> = {}, more: Partial<Run> = {}): Run => ({ key: name, id: `id-${name}`, name, config, state: 'ended', live: false, source: 'sightglass', directory: '', host: 'h', started: 0, ended: 1, version: '', described: 0, last_step: 5, problem: null, ...more })
const runs = [run('mnist-1', { lr: 0.1, opt: { name: 'adam' } }), run('mnist-2', { lr: 0.01, opt: { name: 'sgd' } }), run('cifar', { lr: '1e-2', big: true }, { state: 'running' })]
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
  ['opt.name~^s', ['mnist-2']],
  ['!mnist', ['cifar']],
  ['!opt.name=adam', ['mnist-2', 'cifar']],
  ['big=true', ['cifar']],
  ['state=running', ['cifar']],
  ['nothing=1', []],
  ['lr=', ['mnist-1', 'mnist-2', 'cifar']],
  ['name="mnist-1"', ['mnist-1']],
])('%s', (text, names) => expect(found(text)).toEqual(names))

test('a pattern that cannot be read matches everything and says why', () => {
  const { matches, problem } = parseFilter('mnist-1 (')
  expect(runs.filter(matches).map(({ name }) => name)).toEqual(['mnist-1'])
  expect(problem).toMatch(/^\(: /)
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
  expect(filterKeys('mnist !val/acc.max>0.5 lr<1 "a b"')).toEqual(['val/acc.max', 'lr'])
  columnValues.value = new Map()
})
