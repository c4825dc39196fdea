import { expect, it } from 'vitest'
import { acknowledgement, entry, stream } from './made'
import { argumentOf, stillPending, outcomeOf, costsOf, type Pending } from '../src/run/commands'
import { boundsOf, isLogarithmic, kindOf, placeOf, problemOf, valueAt } from '../src/run/controls'
import type { ControlInfo } from '../src/data/types'

const control = (more: Partial<ControlInfo>): ControlInfo => ({ type: 'float', value: 0.1, min: null, max: null, choices: null, where: 'a.py:1', ...more })

it('has the field that fits', () => {
  expect(kindOf(control({ min: 0, max: 1 }))).toBe('slider')
  expect(kindOf(control({ min: 0 }))).toBe('number')
  expect(kindOf(control({ type: 'bool', value: true }))).toBe('switch')
  expect(kindOf(control({ type: 'str', value: 'a', choices: ['a', 'b'] }))).toBe('choice')
  expect(kindOf(control({ type: 'str', value: 'a' }))).toBe('text')
})
it('slides in powers of ten over decades, both ways', () => {
  const wide = control({ min: 1e-6, max: 1 })
  expect(isLogarithmic(wide)).toBe(true)
  expect(valueAt(wide, 500)).toBe(0.001)
  expect(placeOf(wide, 0.001)).toBeCloseTo(500)
  expect(boundsOf(wide)).toContain('powers of ten')
  const narrow = control({ min: 2, max: 10 })
  expect(isLogarithmic(narrow)).toBe(false)
  expect(valueAt(narrow, 250)).toBe(4)
  expect([valueAt(wide, 0), valueAt(wide, 1000)]).toEqual([1e-6, 1])
})
it('refuses a wrong value before it is sent', () => {
  expect(problemOf(control({ max: 1 }), 2)).toBe('Expected at most 1')
  expect(problemOf(control({ type: 'int' }), 0.5)).toBe('Expected a whole number')
  expect(problemOf(control({}), NaN)).toBe('Expected a number')
  expect(problemOf(control({ min: 0 }), 0)).toBeNull()
})
it('takes an infinite bound, which JSON has as a text, as none', () => {
  const above = control({ min: 0, max: 'Infinity' })
  expect([kindOf(above), boundsOf(above), problemOf(above, 1e300), problemOf(above, -1)]).toEqual(['number', 'float, at least 0', null, 'Expected at least 0'])
})
it('reads arguments as the command line does', () => {
  const typed = ['4', '.5', '1.', '-2e3', 'true', 'True', 'None', '"4"', '[1, 2]', 'best', '1x', '']
  expect(typed.map(argumentOf)).toEqual([4, 0.5, 1, -2000, true, true, null, '4', [1, 2], 'best', '1x', ''])
})
it('is pending until the history shows it, or it was refused', () => {
  const sent: Pending = { command: { kind: 'set', name: 'lr', value: 1 }, sent_s: 100, note: '', problem: '' }
  expect(stillPending(sent, [entry({ kind: 'set', name: 'lr', wall_time: 99 }), entry({ kind: 'set', name: 'wd', wall_time: 101 })])).toBe(sent)
  expect(stillPending(sent, [entry({ kind: 'set', name: 'lr', wall_time: 101 })])).toBeNull()
  const refused = { ...sent, problem: 'too large' }
  expect(stillPending(refused, [entry({ kind: 'set', name: 'lr', wall_time: 101 })])).toBe(refused)
  expect(stillPending(undefined, [])).toBeNull()
})
it('says what a command did', () => {
  const done = acknowledgement({ event: 'epoch', step: 3, result: 42 })
  expect(outcomeOf({ kind: 'set', name: 'lr', value: 0.5 }, done)).toBe('Set lr to 0.5 at epoch 3')
  expect(outcomeOf({ kind: 'call', name: 'save' }, done)).toBe('Called save at epoch 3: 42')
})
it('says what a stream costs', () => {
  const asked = stream({ clients: ['a'], n_records: 10, n_events: 100, n_skipped: 5, stride: 2, spent_s: 0.001 })
  expect(costsOf(asked, 10)).toEqual(['queried by a', '10 records', '10 µs an event', '0.01 % of its time', 'one in 2 events', '5 skipped'])
  expect(costsOf({ ...asked, n_unpaired: 3 }, 0)).toContain('3 without a partner')
})
