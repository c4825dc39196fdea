import { expect, test } from 'vitest'
import { changeOf, comparedConfig } from '../src/pages/runs/compared'

test('configs side by side', () => {
  expect(comparedConfig([{ config: { lr: 1, opt: { name: 'a' } } }, { config: { lr: 1, extra: [1] } }])).toEqual([
    { name: 'lr', values: [1, 1], differs: false },
    { name: 'opt.name', values: ['a', undefined], differs: true },
    { name: 'extra', values: [undefined, [1]], differs: true },
  ])
})

test('how far a number lies from another', () => {
  expect(changeOf(1.1, 1)).toBeCloseTo(0.1)
  expect(changeOf(-1, -2)).toBe(0.5)
  expect([changeOf(1, 0), changeOf('a', 1), changeOf(1, 1), changeOf(NaN, 1)]).toEqual([null, null, null, null])
})
