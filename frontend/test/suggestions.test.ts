import { expect, it } from 'vitest'
import type { Description } from '../src/data/types'
import { suggestions } from '../src/pages/ask/suggestions'

const observable = (type: string, fields: Record<string, string> = {}, example = '') => ({ type, fields, example })
const description = {
  events: {
    batch: { origin: 'observe', n_events: 1200, snapshot: false, observables: { step: observable('int'), loss: observable('float', {}, '0.5'), grads: observable('mapping of 2', { dense: 'float32[64, 32]', 'layer<b>': 'float' }) } },
    epoch: { origin: 'observe', n_events: 2, snapshot: false, observables: { accuracy: observable('float') } },
  },
  functions: { confusion: 'Count pairs.' },
} as unknown as Description

it('suggests what a run offers: often before seldom, numbers first, never its steps', () => {
  const grads = observable('mapping of 2', { 'dense1.kernel': 'float32[64, 32]', 'dense1.bias': 'float32[32]', 'dense2.kernel': 'float32[32, 4]' })
  const params = observable('mapping of 2', { 'fc.weight': 'float32[4, 2]', 'fc.bias': 'float32[4]' })
  const batch = { ...description.events.batch!, observables: { loss: observable('float'), grads, params } }
  const log = { ...batch, n_events: 9999, observables: { 'val/loss': observable('float') } }
  expect(suggestions({ ...description, events: { log, batch } } as unknown as Description)).toEqual([
    'batch.loss',
    'batch.loss.mean(every=100)',
    'batch.grads.map(lambda name, value: norm(value.kernel))',
    'batch.params.map(lambda name, value: norm(value))',
    'batch.grads.dense1.kernel',
    'batch.params["fc.weight"]',
    'log["val/loss"]',
    'log["val/loss"].mean(every=100)',
  ])
})
it('suggests what happens once only where there is nothing else', () => {
  const { batch, epoch } = description.events
  expect(suggestions({ ...description, events: { init: { ...batch!, n_events: 1 }, epoch: epoch! } })).toEqual(['epoch.accuracy', 'epoch.accuracy.mean(every=100)'])
  expect(suggestions({ ...description, events: { init: { ...batch!, n_events: 1 } } })[0]).toBe('init.loss')
})
