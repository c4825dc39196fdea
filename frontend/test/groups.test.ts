import { expect, test } from 'vitest'
import * as made from './made'
import { columnValues } from '../src/data/columnValues'
import { grouped, keysOfGroup, together } from '../src/data/groups'
import type { Run } from '../src/data/types'

const run = (key: string, config: Record<string, unknown>): Run => made.run({ key, id: key, name: key, config })
const sweep = [0.1, 0.2].flatMap((lr) => [0, 1].map((seed) => run(`${lr}-${seed}`, { lr, seed, opt: { name: lr > 0.1 ? 'adam' : 'sgd' }, same: 1 })))
const names = (choice: string, ...sorts: string[]) => Array.from(grouped(sweep, keysOfGroup(choice, sweep), sorts), ([name, members]) => `${name}: ${members.length}`)

test('by several keys, and by all that differ but the seed', () => {
  expect(names('lr|seed')).toEqual(['lr=0.1 seed=0: 1', 'lr=0.1 seed=1: 1', 'lr=0.2 seed=0: 1', 'lr=0.2 seed=1: 1'])
  expect(names('!seed')).toEqual(['lr=0.1 opt.name=sgd: 2', 'lr=0.2 opt.name=adam: 2'])
  expect(keysOfGroup('!seed|!lr|!opt.name', sweep)).toEqual(['name']) // nothing else differs
})

test('groups are ranked by their means', () => {
  columnValues.value = new Map([['acc.max', new Map([['0.1-0', 0.5], ['0.1-1', 0.7], ['0.2-0', 0.8], ['0.2-1', 0.9]])], ['loss.min', new Map([['0.1-0', 1], ['0.1-1', NaN]])]])
  expect(names('!seed', '-acc.max')).toEqual(['lr=0.2 opt.name=adam: 2', 'lr=0.1 opt.name=sgd: 2'])
  expect(names('!seed', '-started', 'acc.max')).toEqual(['lr=0.1 opt.name=sgd: 2', 'lr=0.2 opt.name=adam: 2'])
  expect(together(sweep.slice(0, 2), 'acc.max')).toEqual({ value: expect.closeTo(0.6), std: expect.closeTo(0.1414, 3), n: 2 })
  expect(together(sweep.slice(0, 2), 'loss.min')).toEqual({ value: undefined, std: null, n: 2 }) // NaN has no mean
  columnValues.value = new Map([['loss.min', new Map([['0.1-0', 1], ['0.1-1', Infinity], ['0.2-0', 2], ['0.2-1', 3]])]])
  expect(together(sweep.slice(0, 2), 'loss.min')).toEqual({ value: Infinity, std: null, n: 2 })
  expect(names('!seed', '-loss.min')).toEqual(['lr=0.1 opt.name=sgd: 2', 'lr=0.2 opt.name=adam: 2'])
  expect(together(sweep, 'same')).toEqual({ value: 1, std: null, n: 1 })
  expect(together(sweep, 'opt.name')).toEqual({ value: undefined, std: null, n: 2 })
  expect(together(sweep, 'seed')).toEqual({ value: undefined, std: null, n: 2 }) // the mean of seeds says nothing
  columnValues.value = new Map()
})

test('infinities and NaN of a config are groups of their own, and texts that look like properties stay texts', () => {
  const odd = ['Infinity', '-Infinity', 'NaN', null, 'constructor', 'inf', 1].map((clip, i) => run(`${i}`, { clip }))
  expect([...grouped(odd, ['clip'], []).keys()].sort()).toEqual(['clip=-Infinity', 'clip=1', 'clip=Infinity', 'clip=NaN', 'clip=constructor', 'clip=inf', 'clip=null'])
  expect(together(odd.slice(0, 4), 'clip').n).toBe(4)
})
