import { describe, expect, it } from 'vitest'
import { callAt, completionsAt, suggestions } from '../src/pages/ask/complete'
import type { Description, FunctionInfo } from '../src/data/types'

const observable = (type: string, fields: Record<string, string> = {}, example = '') => ({ type, fields, example })
const description = {
  events: {
    batch: { origin: 'observe', n_events: 1200, snapshot: false, observables: { step: observable('int'), loss: observable('float', {}, '0.5'), grads: observable('mapping of 2', { dense: 'float32[64, 32]', 'layer<b>': 'float' }) } },
    epoch: { origin: 'observe', n_events: 2, snapshot: false, observables: { accuracy: observable('float') } },
  },
  functions: { confusion: 'Count pairs.' },
} as unknown as Description
const functions: FunctionInfo[] = [
  { name: 'norm', signature: 'norm(x, axis=None)', doc: 'Norm.', kind: 'function' },
  { name: 'mean', signature: 'mean(x, axis=None)', doc: 'Of the value.', kind: 'function' },
  { name: 'mean', signature: 'mean(every= | per= | when=)', doc: 'Over a window.', kind: 'reducer' },
  { name: 'keys', signature: 'keys(x)', doc: 'Names.', kind: 'function' },
]
const at = (text: string, caret = text.length) => completionsAt(text, caret, description, functions)
const texts = (text: string) => at(text).items.map((item) => item.text)

describe('completion', () => {
  it('begins with events, functions, and functions of the run', () => {
    expect(texts('')).toEqual(['batch.', 'epoch.', 'on("', 'confusion(', 'mean(', 'norm(', 'keys('])
    expect(texts('ba')[0]).toBe('batch.')
    expect(texts('conf')).toEqual(['confusion('])
  })
  it('offers what is asked often first, before the others by their names', () => {
    const all = ['abs', 'all', 'any', 'argmax', 'max', 'mean', 'norm', 'topk'].map((name): FunctionInfo => ({ name, signature: `${name}(x)`, doc: '', kind: 'function' }))
    const found = completionsAt('batch.loss.', 11, description, all).items.map(({ text }) => text.replace(/\(.*/, ''))
    expect(found.slice(0, 4)).toEqual(['mean', 'norm', 'max', 'abs'])
    expect(found.indexOf('all')).toBeLessThan(found.indexOf('any'))
  })
  it('goes on with observables, and tells what they are now', () => {
    expect(at('batch.l').items[0]).toMatchObject({ text: 'loss', detail: 'float', doc: 'now 0.5' })
    expect(at('batch.l').from).toBe(6)
    expect(texts('norm(batch.')).toEqual(['step', 'loss', 'grads'])
  })
  it('knows the names inside a mapping', () => {
    expect(texts('batch.grads["')).toEqual(['dense"]', 'layer<b>"]'])
    expect(texts("batch.grads['den")).toEqual(["dense']"])
    expect(texts('batch.grads.de')).toContain('dense')
  })
  it('goes down into mappings of mappings, and leaves names with dots whole', () => {
    const grads = observable('mapping of 2', { 'dense1.kernel': 'float32[64, 32]', 'dense1.bias': 'float32[32]', 'out.kernel': 'float32[32, 4]' })
    const params = observable('mapping of 2', { 'fc.weight': 'float32[4, 2]', 'fc.bias': 'float32[4]' })
    const nested = { ...description, events: { batch: { ...description.events.batch!, observables: { grads, params } } } } as unknown as Description
    const found = (text: string) => completionsAt(text, text.length, nested, []).items.filter(({ kind }) => kind === 'name').map(({ text }) => text)
    expect(found('batch.grads["')).toEqual(['dense1"]', 'out"]'])
    expect(found('batch.grads.dense1.')).toEqual(['kernel', 'bias'])
    expect(found('batch.grads["dense1"]["')).toEqual(['kernel"]', 'bias"]'])
    expect(found('batch.params["')).toEqual(['fc.weight"]', 'fc.bias"]'])
    expect(found('batch.params.')).toEqual([])
  })
  it('offers what can be done with a value: reducers, and functions without their first argument', () => {
    const found = at('batch.loss.me').items
    expect(found.map(({ kind, detail }) => [kind, detail])).toEqual([['function', 'mean(axis=None)'], ['reducer', 'mean(every= | per= | when=)']])
    expect(texts('batch.grads.ke')).toEqual(['keys()'])
    expect(texts('norm(batch.loss).me')).toEqual(['mean(', 'mean('])
  })
  it('offers windows in a reducer, and events in their quotes', () => {
    expect(texts('batch.loss.mean(')).toContain('every=100')
    expect(texts('batch.loss.mean(per="')).toEqual(['batch"', 'epoch"'])
    expect(texts('on("e')).toEqual(['epoch"', 'batch"'].filter((one) => one.includes('e')))
  })
  it('knows the variables of lambdas', () => {
    expect(texts('on("batch").map(lambda b: b.lo')).toEqual(['loss'])
    expect(texts('on("batch").map(lambda b: ')[0]).toBe('b.')
    expect(texts('on("batch").map(lambda b: b.grads["')).toContain('dense"]')
  })
  it('is silent within texts and numbers, and where nothing is known', () => {
    expect(texts('batch.loss + "x')).toEqual([])
    expect(texts('batch.loss > 1')).toEqual([])
    expect(completionsAt('batch.', 6, null, [])).toMatchObject({ items: expect.any(Array) })
    expect(at('nothing[').items).toEqual([])
  })
  it('looks at what stands before the caret only', () => {
    expect(at('batch. + epoch.accuracy', 6).items.map(({ text }) => text)).toContain('loss')
  })
})

it('tells the call that is being written', () => {
  expect(callAt('norm(batch.loss', functions)?.signature).toBe('norm(x, axis=None)')
  expect(callAt('batch.loss.mean(every=', functions)?.kind).toBe('reducer')
  expect(callAt('mean(norm(batch.loss), ', functions)?.name).toBe('mean')
  expect(callAt('batch.loss', functions)).toBeNull()
})

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
