import { expect, it, vi } from 'vitest'

vi.mock('../src/data/runs', () => ({ knownRun: () => ({ started: 100 }) }))
vi.mock('../src/data/looks', () => ({ styleOfRun: () => ({ color: 'red' }) }))
vi.mock('../src/state/state', () => ({ at: { moment: { value: '130 k' } } }))

const { here, hereOn, momentOf } = await import('../src/pages/charts/here')

it('is a time and a run in the address', () => {
  expect(momentOf('1700000000.25 a run|x')).toEqual({ run: 'a run|x', wall: 1700000000.25 })
  for (const text of ['', 'x', 'x y', '12']) expect(momentOf(text)).toBeNull()
})

it('has its place on every axis that all runs have', () => {
  here.value = { run: 'k', wall: 130, step: 7 }
  expect([hereOn('step'), hereOn('wall'), hereOn('relative')].map(([mark]) => mark!.x)).toEqual([7, 130, 30])
  expect(hereOn(null)).toEqual([])
  here.value = { run: 'k', wall: 130, step: null }
  expect(hereOn('step')).toEqual([])
})
