// The parts about one run that the page and the notebook's card share: commands on their way, and current values.

import { describe, expect, it, vi } from 'vitest'
import * as made from './made'
import { acknowledgement, entry, observable } from './made'
import type { Acknowledgement, Description, EventInfo, HistoryEntry } from '../src/data/types'
import { Commander } from '../src/run/commander'
import type { Command } from '../src/run/commands'
import { ratesOf, stepOf } from '../src/run/Events'

describe('a command', () => {
  const set: Command = { kind: 'set', name: 'lr', value: 0.5 }
  const applied = acknowledgement({ event: 'batch', step: 7, wall_time: 10, result: 0.5 })

  function commanderOf(send: () => Promise<Acknowledgement>) {
    const history: HistoryEntry[] = [entry({ kind: 'set', name: 'lr', wall_time: 5 })]
    const said: string[] = []
    const tell = (kind: string, text: string) => void said.push(`${kind}: ${text}`)
    return { commander: new Commander({ send, history: () => history, tell, refresh: () => undefined }), history, said }
  }

  it('is pending until the run has applied it', async () => {
    let done: (reply: Acknowledgement) => void = () => {}
    const { commander, said } = commanderOf(() => new Promise((resolve) => (done = resolve)))
    const sending = commander.send(set)
    expect(commander.pending(set)?.command).toEqual(set)
    expect(commander.pending({ kind: 'set', name: 'other' })).toBeNull()
    done(applied)
    await sending
    expect(commander.pending(set)).toBeNull()
    expect(said).toEqual(['done: Set lr to 0.5 at batch 7'])
  })
  it('says after a while what it waits for', async () => {
    vi.useFakeTimers()
    let done: (reply: Acknowledgement) => void = () => {}
    const { commander } = commanderOf(() => new Promise((resolve) => (done = resolve)))
    const sending = commander.send({ ...set, at: 'epoch' })
    expect(commander.pending(set)?.note).toBe('')
    vi.advanceTimersByTime(2_000)
    expect(commander.pending(set)?.note).toBe('Waiting for the next event epoch')
    done(applied)
    await sending
    expect(commander.pending(set)).toBeNull()
    vi.useRealTimers()
  })
  it('stays pending while the run waits for an event, until the history shows it', async () => {
    const { commander, history } = commanderOf(async () => ({ ...applied, applied: false, note: "Waiting for 'epoch'" }))
    await commander.send(set)
    expect(commander.pending(set)?.note).toBe("Waiting for 'epoch'")
    history.push(entry({ kind: 'set', name: 'lr', wall_time: 6 }))
    expect(commander.pending(set)).toBeNull()
  })
  it('that is refused says why, until it is forgotten', async () => {
    const { commander, said } = commanderOf(() => Promise.reject(new Error('expected at most 1')))
    await commander.send(set)
    expect(commander.pending(set)?.problem).toBe('expected at most 1')
    expect(said).toEqual([])
    commander.forget(set)
    expect(commander.pending(set)).toBeNull()
    await commander.send({ kind: 'pause' })
    expect(said).toEqual(['error: expected at most 1'])
  })
})

describe('current values', () => {
  const event = (n_events: number, observables: EventInfo['observables'] = {}): EventInfo => made.event({ n_events, observables })
  const about = (wall_time: number, n: number) => ({ wall_time, events: { batch: event(n) } }) as unknown as Description

  it('are of the newest step that is known', () => {
    const [loss, old] = [observable({ type: 'float', example: '1', step: 8 }), observable({ type: 'int', example: '2', step: 0 })]
    expect(stepOf(event(9, { loss, old, w: observable({ type: 'float32[3]', step: 9 }) }))).toBe(8)
    expect(stepOf(event(9, { loss: observable({ type: 'float', example: '1' }) }))).toBeNull()
  })
  it('come with the rate of each event between two descriptions', () => {
    expect(ratesOf(about(10, 100), about(12, 300))?.get('batch')).toBe(100)
    expect(ratesOf(about(10, 100), about(10, 100))).toBeNull()
    expect(ratesOf(null, about(10, 100))).toBeNull()
  })
})
