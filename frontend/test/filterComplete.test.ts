import { expect, test } from 'vitest'
import type { Run } from '../src/data/types'
import { completionsOf } from '../src/pages/runs/filterComplete'

const run = (config: Record<string, unknown>) => ({ key: '', config, started: null }) as unknown as Run
const known = {
  names: [
    { name: 'lr', kind: 'config' },
    { name: 'opt.name', kind: 'config' },
    { name: 'val/accuracy', kind: 'series' },
    { name: 'a b', kind: 'series' },
  ],
  statistics: ['last', 'max'],
  runs: [run({ lr: 0.1, opt: { name: 'adam' } }), run({ lr: 0.01, opt: { name: 'sgd' } })],
}
const offered = (text: string, asked = false) => completionsOf(text, known, asked).items.map(({ text }) => text)

test.each([
  ['ac', ['val/accuracy']],
  ['val/accuracy.', ['val/accuracy.last', 'val/accuracy.max']],
  ['lr < 1 a', ['and', '"a b"', 'opt.name', 'val/accuracy']],
  ['lr < 1 and n', ['not', 'opt.name']],
  ['opt.name == ', ['"adam"', '"sgd"']],
  ['opt.name == "s', ['"sgd"']],
  ['opt.name in (adam, s', ['"sgd"']],
  ['lr=', []],
  ['lr = 0.0', ['0.01']],
  ['"x', []],
  ['', []],
])('%s', (text, items) => expect(offered(text)).toEqual(items))

test('when asked for, all that may stand there is offered', () => {
  expect(offered('', true)).toEqual(['lr', 'opt.name', 'val/accuracy', '"a b"', 'not'])
})
