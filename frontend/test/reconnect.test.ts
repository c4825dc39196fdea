import { expect, test } from 'vitest'
import { CODE_REFUSED, delayOf, FIRST_DELAY_MS, MAX_DELAY_MS, next, type Link, type LinkEvent } from '../src/data/reconnect'

const after = (...events: LinkEvent[]): Link => events.reduce<Link>((link, event) => next(link, event, 0), { kind: 'off' })
const [start, welcome, due, awake, stop] = (['start', 'welcome', 'due', 'awake', 'stop'] as const).map((kind) => ({ kind })) as LinkEvent[]
const closed = (code = 1006): LinkEvent => ({ kind: 'closed', code })

test('it dials, greets, and waits longer each time that it fails', () => {
  expect(after(start!)).toEqual({ kind: 'dialing', attempt: 0 })
  expect(after(start!, welcome!)).toEqual({ kind: 'open' })
  expect(after(start!, welcome!, closed())).toMatchObject({ kind: 'waiting', delay_ms: FIRST_DELAY_MS })
  expect(after(start!, closed())).toMatchObject({ kind: 'waiting', delay_ms: 2 * FIRST_DELAY_MS })
  expect(after(start!, closed(), due!, closed())).toMatchObject({ delay_ms: 4 * FIRST_DELAY_MS })
})

test('after a welcome the count begins anew', () => {
  expect(after(start!, closed(), due!, closed(), due!, welcome!, closed())).toMatchObject({ delay_ms: FIRST_DELAY_MS })
})

test('an unknown token is not tried again until a new one comes', () => {
  expect(after(start!, closed(CODE_REFUSED))).toEqual({ kind: 'refused' })
  expect(after(start!, closed(CODE_REFUSED), due!, awake!, closed())).toEqual({ kind: 'refused' })
  expect(after(start!, closed(CODE_REFUSED), start!)).toEqual({ kind: 'dialing', attempt: 0 })
})

test('a machine that wakes up does not wait', () => {
  expect(after(start!, closed(), awake!)).toEqual({ kind: 'dialing', attempt: 0 })
  expect(after(start!, welcome!, awake!)).toEqual({ kind: 'open' })
})

test('stopped is stopped', () => expect(after(start!, stop!, closed(), due!, awake!)).toEqual({ kind: 'off' }))

test('delays double up to a limit, with up to a half taken off', () => {
  expect(delayOf(0, 0)).toBe(FIRST_DELAY_MS)
  expect(delayOf(50, 0)).toBe(MAX_DELAY_MS)
  expect(delayOf(50, 1)).toBe(MAX_DELAY_MS / 2)
})
