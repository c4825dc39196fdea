import { expect, it } from 'vitest'
import { commandOf, isNamed, pythonOf } from '../src/data/copyAs'
import * as made from './made'

const run = (given: object) => made.run({ own_name: 'mnist', id: 'a1b2c3d4e5f6', directory: '/r/mnist', live: false, hub_role: '', ...given })
const recorded = run({ key: 'r' })
const live = run({ key: 'l', live: true })

it('opens what is recorded, and connects to what is live', () => {
  expect(pythonOf([{ run: recorded, query: 'train/loss' }], true, [], 'train/loss')).toBe('import sightglass as sg\n\nsg.plot(\n    sg.open("/r/mnist").stream("train/loss"),\n)\n')
  expect(pythonOf([{ run: live, query: 'batch.loss' }], false, [live], 'batch.loss')).toContain('sg.connect("mnist").stream("batch.loss")')
  expect(pythonOf([{ run: live, query: 'loss' }], true, [live], 'loss')).toContain('sg.open("/r/mnist").stream("loss")')
  expect(pythonOf([{ run: 'sweep-*', query: 'batch.loss' }], false, [], 'batch.loss')).toContain('sg.fleet("sweep-*").stream("batch.loss")')
})

it('draws as the card does', () => {
  const text = pythonOf([{ run: recorded, query: 'a' }, { run: recorded, query: 'b' }], true, [], 'a, b', { x: 'relative', smooth: 0.6, xlog: true, ylog: true, clip: true })
  expect(text).toContain('    title="a, b",\n    x="relative",\n    smooth=0.6,\n    log_x=True,\n    log_y=True,\n    clip=True,\n)')
})

it('names a run by its id where another live one has its name', () => {
  const other = run({ key: 'o', live: true, id: 'ffffffffffff' })
  expect(pythonOf([{ run: live, query: 'q' }], false, [live, other], 'q')).toContain('sg.connect("a1b2c3d4e5f6")')
  expect(commandOf([{ run: live, query: 'q' }], false, [live, other])).toBe('sightglass watch a1b2c3d4e5f6 q\n')
})

it('needs the hub file of a run that is reached over a hub', () => {
  const far = run({ live: true, hub_role: 'viewer' })
  expect(pythonOf([{ run: far, query: 'q' }], false, [far], 'q')).toContain('sg.connect("mnist", hub="controller.hub")')
  expect(commandOf([{ run: far, query: 'q' }], false, [far])).toBe('sightglass --hub controller.hub watch mnist q\n')
})

it('quotes for the shell, and asks a run once', () => {
  const odd = run({ directory: "/r/it's mine" })
  expect(commandOf([{ run: odd, query: 'batch.grads["w"].mean()' }, { run: odd, query: 'loss' }, { run: 'sweep-*', query: 'loss' }], true, [])).toBe(
    `sightglass watch '/r/it'\\''s mine' 'batch.grads["w"].mean()' loss\nsightglass watch 'sweep-*' loss\n`,
  )
})

it('leaves out runs that nothing names', () => {
  expect([isNamed(recorded), isNamed(live), isNamed(run({ directory: '' }))]).toEqual([true, true, false])
})
